"""Deals as JSON, and files with one game a line. The keys of a line are `prompt`, `game_state`, `ground_truth`,
`optimal_score`, `game_id` and `name`.

`game_state` is the deal. `ground_truth` is a copy of the deal, for trainers that read this key. `prompt` is the first
text that player 1 reads. `game_id` is the number of the line, from 0, and `name` is unique across files. `read_games`
needs only `game_state`. This module does not depend on how games are dealt or played.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from slimrl.errors import UserError
from slimrl.io.rows import file_rows, preview
from slimrl_envs.matching_game.rules.deal import MAX_VALUE, UNKNOWN, Deal, default_names
from slimrl_envs.matching_game.rules.game import usual_turns
from slimrl_envs.matching_game.rules.protocol import rules

Scale = Annotated[float, Field(gt=0, le=1e300, allow_inf_nan=False)]  # a scaled value must be a finite float
Mask = list[list[Annotated[int, Field(ge=0, le=1)] | bool]]


class _State(BaseModel):
    model_config = ConfigDict(strict=True)

    table: list[list[Annotated[int, Field(ge=0, le=MAX_VALUE)]]]
    mask1: Mask
    mask2: Mask
    scale1: Scale
    scale2: Scale
    best_assignment_reward: float
    papers: list[str] | None = None
    reviewers: list[str] | None = None
    order: tuple[list[int], list[int]] | None = Field(None, strict=False)

    @model_validator(mode="after")
    def _check(self) -> Self:
        size = len(self.table)
        for name, grid in (("table", self.table), ("mask1", self.mask1), ("mask2", self.mask2)):
            if size < 2 or [len(row) for row in grid] != [size] * size:
                raise ValueError(f"{name} must be square, 2 x 2 at least, and as large as the table")
        for values, *flags in zip(self.table, self.mask1, self.mask2, strict=True):
            if any(value != UNKNOWN and not (a or b) for value, a, b in zip(values, *flags, strict=True)):
                raise ValueError(f"a value of the table is not {UNKNOWN}, and nobody knows it")
        if any(one and sorted(one) != list(range(size)) for one in self.order or ()):
            raise ValueError(f"order must have each of 0 to {size - 1} once")
        return self


def game_state(deal: Deal) -> dict[str, Any]:
    """Return a deal as a JSON object; `deal_of` is the inverse. Default names and the default order are left out."""
    state: dict[str, Any] = {
        "table": [list(row) for row in deal.table],
        "mask1": [[int(known) for known in row] for row in deal.known[0]],
        "mask2": [[int(known) for known in row] for row in deal.known[1]],
        "scale1": deal.scales[0],
        "scale2": deal.scales[1],
        "best_assignment_reward": deal.best,
    }
    if (deal.papers, deal.reviewers) != default_names(deal.size):
        state |= {"papers": list(deal.papers), "reviewers": list(deal.reviewers)}
    if any(deal.order):
        state |= {"order": [list(order) for order in deal.order]}
    return state


def deal_of(state: Mapping[str, Any], game_id: str) -> Deal:
    """Return the deal of a `game_state`. Raise ValueError, which names the key, if a key is missing or wrong."""
    try:
        read = _State.model_validate(dict(state))
    except ValidationError as error:
        first = error.errors()[0]
        if not first["loc"]:
            raise ValueError(first["msg"].removeprefix("Value error, ")) from error
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place}: {first['msg']:.60}, not {first['input']!r:.40}") from error
    papers, reviewers = default_names(len(read.table))
    first_order, second_order = read.order or ([], [])
    masks = (tuple(tuple(map(bool, row)) for row in mask) for mask in (read.mask1, read.mask2))
    deal = Deal(
        table=tuple(map(tuple, read.table)),
        known=(next(masks), next(masks)),
        scales=(read.scale1, read.scale2),
        papers=tuple(read.papers or papers),
        reviewers=tuple(read.reviewers or reviewers),
        game_id=game_id,
        order=(tuple(first_order), tuple(second_order)),
    )
    for names in (deal.papers, deal.reviewers):
        if len({*map(str.casefold, names)}) != deal.size:
            raise ValueError(f"papers and reviewers need {deal.size} different names each")
    if read.best_assignment_reward != deal.best:
        given = read.best_assignment_reward
        raise ValueError(f"best_assignment_reward is {given:g}, but the best assignment of this table has {deal.best}")
    return deal


def row(deal: Deal, number: int, max_turns: int | None = None) -> dict[str, Any]:
    """Return a deal as row `number` of a data set. `max_turns` is the number of messages that the `prompt` announces
    (default: `usual_turns`)."""
    state, num = game_state(deal), usual_turns(deal.size) if max_turns is None else max_turns
    return {
        "prompt": f"{rules(deal, num)}\n\n{deal.table_text(0)}",
        "game_state": state,
        "ground_truth": state,
        "optimal_score": deal.best,
        "game_id": number,
        "name": deal.game_id,
    }


def lines(deals: Iterable[Deal], max_turns: int | None = None) -> Iterator[bytes]:
    """Return the lines of a file of games."""
    rows = (row(deal, number, max_turns) for number, deal in enumerate(deals))
    return (json.dumps(content, ensure_ascii=False).encode() + b"\n" for content in rows)


def read_games(path: Path) -> list[Deal]:
    """Return the games of a file (JSONL or parquet). Raise UserError for a file without games, and for a line that is
    not a game. The error names the file and the line."""
    games = [_deal(content, place) for content, place in file_rows(path, "the path of the games")]
    if not games:
        raise UserError(
            f"{path} holds no games. Write some with `scripts/generate_data.py --output NAME.jsonl`, and name that "
            "file."
        )
    return games


def _deal(content: Any, place: str) -> Deal:
    state = content.get("game_state") if isinstance(content, dict) else None
    if not isinstance(state, dict):
        raise UserError(
            f"{place} is no matching game: a row is a JSON object with a `game_state`, but here stands "
            f"{preview(content)}. `scripts/generate_data.py` writes such files."
        )
    try:
        return deal_of(state, str(content.get("name") or content.get("game_id", place)))
    except ValueError as error:
        raise UserError(f"{place} is no matching game: {error}.") from error
