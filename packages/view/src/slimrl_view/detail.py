"""Reads one rollout from its file: messages, metrics, and its tokens with their values."""

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from slimrl.errors import UserError
from slimrl.io.files import parse_object
from slimrl.io.regular_file import open_regular
from slimrl_view.lines import encodable
from slimrl_view.pieces import find_tokenizer, pieces_of
from slimrl_view.queries import Missing, Place
from slimrl_view.segments import segments_of
from slimrl_view.token_values import token_values

Json = dict[str, Any]
NO_TOKENIZER = (
    "This run has saved no tokenizer (tokenizer/tokenizer.json, or one beside its weights), so its text cannot be "
    "divided into tokens."
)
NO_TOKENS = "The tokens of this rollout are not as a run writes them, and cannot be shown."
OTHER_TEXT = (
    "The tokenizer that the run has saved spells these tokens otherwise than the run did when it wrote them: colours "
    "may stand beside the wrong words."
)


def read_rollout(run: Path, place: Place) -> Json:
    """Return a rollout with its messages and tokens. Raises Missing if its line has moved or changed."""
    record = _record(run / place.path, place)
    mask = [int(bool(value)) for value in record["loss_mask"]]
    found: Json = {"tokens": None, "segments": [], "tokens_note": NO_TOKENS, "text": str(record.get("text", ""))}
    try:
        found |= _tokens(run, place, record, mask)
    except UserError as error:
        found["tokens_note"] = str(error)
    except (LookupError, TypeError, ValueError, OverflowError):
        pass
    return place.row | {
        "metrics": record.get("metrics", {}),
        "failure_detail": record.get("failure_detail", ""),
        "task_data": record.get("task_data", {}),
        "turn_rewards": record.get("turn_rewards", []),
        "advantages": record.get("advantages", []),
        "messages": record["messages"],
        "num_tokens": len(mask),
        "num_sampled": sum(mask),
        **found,
    }


def _record(path: Path, place: Place) -> Json:
    try:
        with open_regular(path) as file:
            file.seek(place.begin)
            record = parse_object(file.read(place.size))
        if encodable(str(record["task_id"])) == place.row["task"]:
            return record
    except (ValueError, KeyError, UserError):
        pass
    raise Missing(f"{place.path} has changed since it was indexed: reload the page in a moment.")


def _tokens(run: Path, place: Place, record: Json, mask: list[int]) -> Json:
    """Return the tokens, the segments, the tokenizer's text, and a note if this text differs from the run's. Raises
    UserError without a tokenizer, and a standard exception for malformed lists."""
    path = find_tokenizer(run)
    if path is None:
        raise UserError(NO_TOKENIZER)
    tokenizer = pieces_of(path, path.stat().st_mtime)
    ids = record["token_ids"]
    if not len(ids) == len(mask) == len(record["logprobs"]) == len(record["versions"]):
        raise ValueError("the lists of a rollout's tokens differ in length")
    pieces, turns = tokenizer.split(ids), _turns(mask)
    tokens = {
        "ids": ids,
        "text": pieces,
        "mask": mask,
        "logprob": record["logprobs"],
        "version": record["versions"],
        **token_values(run / place.path, place.row["line"], mask),
        "turn": turns,
    }
    if tokens["advantage"] is None:  # the file has one value for each turn
        tokens["advantage"] = _spread(record.get("advantages", []), turns)
    segments = segments_of(pieces, mask, record["messages"], [token in tokenizer.special_ids for token in ids])
    whole = "".join(pieces)
    note = "" if whole == str(record.get("text", "")) else OTHER_TEXT
    return {"tokens": tokens, "segments": segments, "tokens_note": note, "text": whole}


def _turns(mask: Sequence[int]) -> list[int]:
    """Return the number of the turn that sampled each token; -1 for other tokens."""
    begins = (now and not before for before, now in zip((0, *mask), mask, strict=False))
    return [count - 1 if sampled else -1 for count, sampled in zip(accumulate(begins), mask, strict=True)]


def _spread(advantages: Sequence[float | None], turns: Sequence[int]) -> list[float | None] | None:
    """Return the advantage of each token's turn; None unless every turn has one."""
    if not advantages or len(advantages) != max(turns, default=-1) + 1:
        return None
    return [advantages[turn] if turn >= 0 else None for turn in turns]
