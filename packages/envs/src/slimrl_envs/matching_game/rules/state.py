"""A deal as JSON: the `game_state` that rows of a data set and saved games hold. Knows nothing of files."""

from collections.abc import Mapping
from typing import Any

from slimrl_envs.matching_game.rules.deal import Deal, Mask, Table, default_names

LARGEST = 1e300
"""The largest scale: a scaled value must be a float, and an integer in JSON may be larger than any float."""
KEYS = ("table", "mask1", "mask2", "scale1", "scale2", "best_assignment_reward")


def game_state(deal: Deal) -> dict[str, Any]:
    """The state of a deal, of which `deal_of` is the inverse. Default names and the default order are left out."""
    state: dict[str, Any] = {
        "table": [list(row) for row in deal.table],
        "mask1": _numbers(deal.known[0]),
        "mask2": _numbers(deal.known[1]),
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
    """The deal that a `game_state` describes. Raises ValueError that says what is missing or wrong."""
    missing = [key for key in KEYS if key not in state]
    if missing:
        raise ValueError(f"game_state lacks {', '.join(missing)}")
    table = _table(state["table"])
    papers, reviewers = default_names(len(table))
    deal = Deal(
        table=table,
        known=(_mask("mask1", state["mask1"]), _mask("mask2", state["mask2"])),
        scales=(_number("scale1", state["scale1"]), _number("scale2", state["scale2"])),
        papers=_names("papers", state.get("papers") or papers),
        reviewers=_names("reviewers", state.get("reviewers") or reviewers),
        game_id=game_id,
        order=_order(state.get("order") or ((), ())),
    )
    best = state["best_assignment_reward"]
    if best != deal.best:
        raise ValueError(
            f"best_assignment_reward is {best}, but the best assignment of this table is worth {deal.best}"
        )
    return deal


def _numbers(mask: Mask) -> list[list[int]]:
    return [[int(known) for known in row] for row in mask]


def _rows(key: str, grid: object) -> list[list[Any]]:
    if not isinstance(grid, list) or not all(isinstance(row, list) for row in grid):
        raise ValueError(f"{key} must be a list of rows, each a list of cells")
    return grid


def _table(grid: object) -> Table:
    return tuple(tuple(row) for row in _rows("table", grid))


def _mask(key: str, grid: object) -> Mask:
    rows = _rows(key, grid)
    for cell in (cell for row in rows for cell in row):
        if cell not in (0, 1):
            raise ValueError(f"{key} holds {cell!r}; a mask is 1 where the player knows the value and 0 elsewhere")
    return tuple(tuple(cell == 1 for cell in row) for row in rows)


def _number(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{key} is {value!r}; it must be a number")
    if abs(value) > LARGEST:
        raise ValueError(f"{key} is {value!r:.40}; it must be above 0, and {LARGEST:g} at most")
    return float(value)


def _names(key: str, names: object) -> tuple[str, ...]:
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{key} must be a list of names")
    return tuple(names)


def _order(orders: object) -> tuple[tuple[int, ...], tuple[int, ...]]:
    pair = list(orders) if isinstance(orders, list | tuple) else []
    if len(pair) != 2 or not all(isinstance(order, list | tuple) for order in pair):
        raise ValueError(f"order is {orders!r:.80}; it must be two lists, of reviewers and of papers")
    if any(type(place) is not int for order in pair for place in order):
        raise ValueError("order holds something that is no whole number")
    return tuple(pair[0]), tuple(pair[1])
