"""Reads one rollout from its file: messages, metrics, and its tokens with their texts and values."""

import zipfile
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from slimrl.errors import UserError, describe
from slimrl.io.files import parse_object
from slimrl.io.regular_file import open_regular, read_regular
from slimrl.io.run_dir import RunDir, step_directories
from slimrl_view.lines import encodable, is_number
from slimrl_view.queries import Missing, Place
from slimrl_view.segments import segments_of

Json = dict[str, Any]
TOKENIZER = "tokenizer.json"
MAX_TOKENIZER_BYTES = 256 * 2**20
TRAINED = ("advantage", "entropy", "log_ratio")  # the trainer's values of each token
NO_TOKENIZER = (
    "This run has saved no tokenizer (tokenizer/tokenizer.json, or one beside its weights), so its text cannot be "
    "divided into tokens."
)
OTHER_TEXT = (
    "The tokenizer that the run has saved spells these tokens otherwise than the run did when it wrote them: colours "
    "may stand beside the wrong words."
)


def read_rollout(run: Path, place: Place) -> Json:
    """Return a rollout with its messages and tokens. Raises Missing if its line has moved or changed."""
    record = _record(run / place.path, place)
    mask = [int(bool(value)) for value in record["loss_mask"]]
    found: Json = {"tokens": None, "segments": [], "text": str(record.get("text", ""))}
    try:
        found |= _tokens(run, place, record, mask)
    except UserError as error:
        found["tokens_note"] = str(error)
    except (LookupError, TypeError, ValueError) as error:
        found["tokens_note"] = f"The record of the tokens is damaged: {describe(error)}"
    return place.row | {
        "metrics": {name: value if is_number(value) else None for name, value in record.get("metrics", {}).items()},
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
    path = find_tokenizer(run)
    if path is None:
        raise UserError(NO_TOKENIZER)
    tokenizer = pieces_of(path, path.stat().st_mtime)
    ids = record["token_ids"]
    pieces = tokenizer.split(ids)
    tokens = {
        "ids": ids,
        "text": pieces,
        "mask": mask,
        "logprob": [value if is_number(value) else None for value in record["logprobs"]],
        "version": record["versions"],
        **token_values(run / place.path, place.row["line"], mask),
        "turn": _turns(mask),
    }
    segments = segments_of(pieces, mask, record["messages"], [token in tokenizer.special_ids for token in ids])
    whole = "".join(pieces)
    note = "" if whole == str(record.get("text", "")) else OTHER_TEXT
    return {"tokens": tokens, "segments": segments, "tokens_note": note, "text": whole}


def _turns(mask: Sequence[int]) -> list[int]:
    """Return for each token the turn that sampled it, counted from 0; -1 for tokens that the policy did not sample."""
    begins = (now and not before for before, now in zip((0, *mask), mask, strict=False))
    return [count - 1 if sampled else -1 for count, sampled in zip(accumulate(begins), mask, strict=True)]


def find_tokenizer(run: Path) -> Path | None:
    """Return the file of a run's tokenizer: the run's own file, or the file beside the newest saved weights; else
    None."""
    places = [run / "tokenizer", *reversed(step_directories(RunDir(run).weights))]
    return next((place / TOKENIZER for place in places if (place / TOKENIZER).is_file()), None)


class Pieces:
    """A tokenizer that decodes tokens one by one. The text of one token is its piece. If a character's bytes are spread
    over several tokens, the last of these tokens gets the character, and the other pieces are empty."""

    def __init__(self, path: Path) -> None:
        """Read a tokenizer's file. Raises UserError if it is malformed."""
        try:
            self._tokenizer = Tokenizer.from_str(read_regular(path, MAX_TOKENIZER_BYTES).decode("utf-8", "replace"))
        except Exception as error:  # the library does not define an exception type
            raise UserError(f"{path} cannot be read as a tokenizer: {error}") from None
        added = self._tokenizer.get_added_tokens_decoder()
        self.special_ids = frozenset(number for number, token in added.items() if token.special)

    def split(self, token_ids: Sequence[int]) -> list[str]:
        """Return the piece of each token. The joined pieces are the whole text: an incomplete character at the end is
        added to the last piece."""
        stream = DecodeStream(skip_special_tokens=False)
        pieces = [stream.step(self._tokenizer, token) or "" for token in token_ids]
        whole, so_far = self._tokenizer.decode([*token_ids], skip_special_tokens=False), "".join(pieces)
        if pieces and whole.startswith(so_far):
            pieces[-1] += whole[len(so_far) :]
        return pieces


@lru_cache(maxsize=4)
def pieces_of(path: Path, mtime: float) -> Pieces:
    """Return the tokenizer in a file, cached by the path and by the file's modification time `mtime`."""
    return Pieces(path)


def token_values(rollouts: Path, line: int, mask: list[int]) -> dict[str, list[float | None] | None]:
    """Return the trainer's values for the tokens of the rollout at line `line`: a list for each name in `TRAINED`, or
    None if the values were not recorded. A list has None for tokens that the policy did not sample."""
    values: dict[str, list[float | None] | None] = dict.fromkeys(TRAINED)
    path = rollouts.with_name(f"{rollouts.stem}.tokens.npz")
    arrays = _load(path, path.stat().st_mtime_ns) if path.is_file() else {}
    if not {"rows", "lengths"} <= arrays.keys() or line not in arrays["rows"]:
        return values
    row = int(np.argmax(arrays["rows"] == line))
    begin, end = (int(arrays["lengths"][:number].sum()) for number in (row, row + 1))
    places = np.flatnonzero(mask)
    for name in TRAINED & arrays.keys():
        if len(places) == len(numbers := arrays[name][begin:end]):
            spread: list[float | None] = [None] * len(mask)
            for place, number in zip(places, numbers.astype(float).tolist(), strict=True):
                spread[place] = number
            values[name] = spread
    return values


@lru_cache(maxsize=4)
def _load(path: Path, mtime_ns: int) -> dict[str, Any]:
    """Return the arrays in a file, cached by its time of change; an empty dict if it is damaged, or still being
    written."""
    try:
        # Open the file here, because numpy does not close a file that it cannot read.
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            return {name: file[name] for name in ("rows", "lengths", *TRAINED) if name in file.files}
    except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile):
        return {}
