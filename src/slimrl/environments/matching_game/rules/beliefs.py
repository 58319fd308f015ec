"""What a player can work out from numbers: the scale they are on, the table as it looks to it, what is worth asking.

Nothing here knows a deal's hidden part: every function takes only what a player has seen or been told.
"""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from slimrl.environments.matching_game.rules.deal import MAX_VALUE, UNKNOWN, Assignment, optimum
from slimrl.environments.matching_game.rules.parser import Cell

Grid = Sequence[Sequence[int | None]]
Beliefs = npt.NDArray[np.float64]

P_KNOWN = 0.4  # that a player knows a cell
MIN_SCALE, MAX_SCALE = 1.0, 10.0
USUAL = 250
"""A usual number: 50, what a pair of which nothing is known counts, on a scale of 5. Any number below it is low."""
NEARLY = 0.98  # of the best that a player sees: what looks as good
_SCALES = np.linspace(MIN_SCALE, MAX_SCALE, 9001)
_VALUES = np.arange(MAX_VALUE + 1)
_NEVER = -1e6  # the weight of a pair that must not be chosen


def likely_scale(numbers: Sequence[int], values: Sequence[int | None] = ()) -> float:
    """The scale that made whole values, 0 to 99, into these numbers: one which explains most of them.

    A scale explains `x` if some whole `v` has `int(v * scale) == x`. Chance does that for one number in `scale`, so a
    handful of numbers tells the scale. `values` are those of the same cells where they are known: they count first.
    """
    score_S = np.zeros_like(_SCALES)
    known = list(values) or [None] * len(numbers)
    for number, value in zip(numbers, known, strict=True):
        value_S = np.ceil(number / _SCALES) if value is None else np.full_like(_SCALES, value)
        explained_S = (value_S <= MAX_VALUE) & (np.floor(value_S * _SCALES) == number)
        score_S += explained_S * (1 if value is None else len(numbers) + 1)
    return float(_SCALES[score_S == score_S.max()].mean())


def value_on(scale: float, number: int) -> float:
    """The value that a number on this scale stands for."""
    return float(min(MAX_VALUE, np.ceil(number / scale)))


def own_values(seen: Grid) -> dict[Cell, float]:
    """The values of the cells that a player sees, its scale worked out."""
    cells = {(r, p): number for r, row in enumerate(seen) for p, number in enumerate(row) if number is not None}
    scale = likely_scale(list(cells.values()))
    return {cell: value_on(scale, number) for cell, number in cells.items()}


def combine_beliefs(size: int, own: Mapping[Cell, float], told: Mapping[Cell, int]) -> Beliefs:
    """The table as it looks with what the other player told, on its own scale; 50 where nothing is known."""
    beliefs = np.full((size, size), float(UNKNOWN))
    if told:
        known = [round(own[cell]) if cell in own else None for cell in told]
        scale = likely_scale(list(told.values()), known)
        for cell, number in told.items():
            beliefs[cell] = value_on(scale, number)
    for cell, value in own.items():
        beliefs[cell] = value
    return beliefs


def gains(beliefs: Beliefs, cells: Collection[Cell]) -> dict[Cell, float]:
    """How much better the best assignment is expected to become by asking for a cell that counts 50 so far.

    The other player knows a cell with probability 0.4, and then every value is as likely; else it stays at 50.
    """
    best = optimum(beliefs)
    worth = worth_of(beliefs, best)
    gained: dict[Cell, float] = {}
    for reviewer, paper in cells:
        if best[paper] == reviewer:
            kept, other = worth - beliefs[reviewer, paper] + _VALUES, _without(beliefs, (reviewer, paper))
        else:
            kept, other = _with(beliefs, (reviewer, paper)) - beliefs[reviewer, paper] + _VALUES, worth
        gained[reviewer, paper] = P_KNOWN * (float(np.maximum(kept, other).mean()) - worth)
    return gained


def worth_of(beliefs: Beliefs, assignment: Assignment) -> float:
    """The sum over the pairs of an assignment."""
    return float(beliefs[list(assignment), range(len(assignment))].sum())


def looks_best(beliefs: Beliefs, assignment: Assignment) -> bool:
    """Whether it is worth as much as the best, or nearly: two players round differently."""
    return worth_of(beliefs, assignment) >= NEARLY * worth_of(beliefs, optimum(beliefs))


def best_except(beliefs: Beliefs, refused: Collection[Assignment]) -> Assignment:
    """The best assignment, or one near it that is not refused: with one pair of the best, or two, ruled out."""
    best = optimum(beliefs)
    if best not in refused:
        return best
    tried: list[Assignment] = []
    for paper, reviewer in enumerate(best):
        tried.append(optimum(_exclude(beliefs, [(reviewer, paper)])))
        for other_paper, other in enumerate(tried[-1]):
            tried.append(optimum(_exclude(beliefs, [(reviewer, paper), (other, other_paper)])))
    return max((one for one in tried if one not in refused), key=lambda one: worth_of(beliefs, one), default=best)


def _exclude(beliefs: Beliefs, cells: Collection[Cell]) -> Beliefs:
    changed = beliefs.copy()
    for cell in cells:
        changed[cell] = _NEVER
    return changed


def _without(beliefs: Beliefs, cell: Cell) -> float:
    """What the best assignment without a pair is worth."""
    return worth_of(beliefs, optimum(_exclude(beliefs, [cell])))


def _with(beliefs: Beliefs, cell: Cell) -> float:
    """What the best assignment with a pair is worth."""
    reviewer, paper = cell
    rest = np.delete(np.delete(beliefs, reviewer, axis=0), paper, axis=1)
    return float(beliefs[cell]) + worth_of(rest, optimum(rest))
