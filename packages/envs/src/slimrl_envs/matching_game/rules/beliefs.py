"""The beliefs of a player about the table: the scale of a list of numbers, the expected values, and the gain of a
question.

All functions use only numbers that a player has seen or heard, and never the hidden part of a deal.
"""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from slimrl_envs.matching_game.rules.deal import MAX_VALUE, UNKNOWN, Assignment, Cell, optimum

Beliefs = npt.NDArray[np.float64]

P_KNOWN = 0.4  # the probability that a player knows a cell
MIN_SCALE, MAX_SCALE = 1.0, 10.0
USUAL = 250
"""The number that is assumed for an unknown pair: the value 50 times a scale of 5. Smaller numbers are called low."""
_SCALES = np.linspace(MIN_SCALE, MAX_SCALE, 9001)
_VALUES = np.arange(MAX_VALUE + 1)
_NEVER = -1e6  # the weight of a pair that must not be chosen


def likely_scale(numbers: Sequence[int], values: Sequence[int | None] = ()) -> float:
    """Return the scale that explains most of the `numbers`. A number is an integer value from 0 to 99, multiplied by
    the scale and rounded down. `values` has the value for each number, None for an unknown value. Without `values`, all
    values are unknown.

    A scale explains the number `x` if `int(v * scale) == x` for some integer `v`. A wrong scale explains a number by
    chance with probability 1 / scale, so a few numbers identify the scale.
    """
    score_S = np.zeros_like(_SCALES)
    known = list(values) or [None] * len(numbers)
    for number, value in zip(numbers, known, strict=True):
        # Only the least value with `value * scale >= number` can be rounded down to the number.
        value_S = np.ceil(number / _SCALES) if value is None else np.full_like(_SCALES, value)
        explained_S = (value_S <= MAX_VALUE) & (np.floor(value_S * _SCALES) == number)
        # One known value outweighs all unknown ones together, since it leaves no choice of `v`.
        score_S += explained_S * (1 if value is None else len(numbers) + 1)
    # The scales that explain most numbers form a short interval. Its middle has the smallest expected error.
    return float(_SCALES[score_S == score_S.max()].mean())


def value_on(scale: float, number: int) -> float:
    """Return the value of a cell from the `number` that a player with this scale sees."""
    return float(min(MAX_VALUE, np.ceil(number / scale)))


def own_values(seen: Mapping[Cell, int]) -> dict[Cell, float]:
    """Return the values of the cells that a player sees. The player's scale is estimated from the numbers."""
    scale = likely_scale(list(seen.values()))
    return {cell: value_on(scale, number) for cell, number in seen.items()}


def combine_beliefs(size: int, own: Mapping[Cell, float], told: Mapping[Cell, int]) -> Beliefs:
    """Return a player's beliefs: its `own` values, then values for the other player's numbers `told`, and 50 for all
    other cells. The scale of the latter is estimated."""
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
    """Return the expected gain of a question about each of the `cells`: the increase of the best assignment's worth.
    The current belief about all `cells` must be 50.

    The other player knows a cell with probability 0.4. In that case all values are equally likely; otherwise the belief
    stays 50.
    """
    worth = worth_of(beliefs, optimum(beliefs))
    gained: dict[Cell, float] = {}
    for reviewer, paper in cells:
        # A new value changes all assignments with the pair by the same amount. So for each possible value, the best
        # assignment is the best one with the pair or the best one without the pair.
        rest = np.delete(np.delete(beliefs, reviewer, axis=0), paper, axis=1)
        without = _exclude(beliefs, [(reviewer, paper)])
        better = np.maximum(worth_of(rest, optimum(rest)) + _VALUES, worth_of(without, optimum(without)))
        gained[reviewer, paper] = P_KNOWN * (float(better.mean()) - worth)
    return gained


def worth_of(beliefs: Beliefs, assignment: Assignment) -> float:
    """Return the sum of the beliefs over the pairs of an assignment."""
    return float(beliefs[list(assignment), range(len(assignment))].sum())


def best_except(beliefs: Beliefs, refused: Collection[Assignment]) -> Assignment:
    """Return the best assignment that is not in `refused`. Only the optimum, and the optima without one or two chosen
    pairs, are searched. If all of these are refused, return the optimum."""
    best = optimum(beliefs)
    if best not in refused:
        return best
    # Forbidding each pair of the optimum in turn finds the exact second best. Forbidding a second pair finds more.
    tried: list[Assignment] = []
    for paper, reviewer in enumerate(best):
        tried.append(optimum(_exclude(beliefs, [(reviewer, paper)])))
        for other_paper, other in enumerate(tried[-1]):
            tried.append(optimum(_exclude(beliefs, [(reviewer, paper), (other, other_paper)])))
    return max((one for one in tried if one not in refused), key=lambda one: worth_of(beliefs, one), default=best)


def _exclude(beliefs: Beliefs, cells: Collection[Cell]) -> Beliefs:
    """Return a copy of the beliefs in which the cells have so low a value that no best assignment contains them."""
    changed = beliefs.copy()
    for cell in cells:
        changed[cell] = _NEVER
    return changed
