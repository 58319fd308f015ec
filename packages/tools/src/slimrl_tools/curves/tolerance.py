"""Computes how far a run may be from the recorded seeds of its recipe: bands for curves and for single numbers.

A recipe has few seeds, mostly three, so they are a poor estimate of their spread. It is therefore weighed against a
second estimate with `PRIOR` degrees of freedom, which each run provides: for a curve its jumps from step to step, for
an evaluation the interval of its mean. The width follows Student's distribution for the mean of the seeds and one
further run, with the chance divided among all comparisons (Bonferroni). Axes: `_R` runs, `_S` steps.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slimrl.monitor.series import smooth
from slimrl.stats import Z_95, Estimate, student_quantile

CHANCE = 0.005  # probability that a run like the recorded ones leaves a band; for curve and evaluations each
PRIOR = 4.0
# The smoothed curves of two seeds keep their distance for many steps: a run has about this many independent ones.
PIECES = 4
MIN_HALF = 0.02  # of a range of 1: less is of no interest


@dataclass(frozen=True, slots=True)
class Band:
    """The middle of the seeds at each step, and half the width of the band for a run's smoothed curve. `reach` is the
    smoothing of both (`series.smooth`)."""

    mid_S: np.ndarray
    half: float
    reach: int

    @property
    def low_S(self) -> np.ndarray:
        """Return the lower edge."""
        return self.mid_S - self.half

    @property
    def high_S(self) -> np.ndarray:
        """Return the upper edge."""
        return self.mid_S + self.half

    @property
    def is_blind(self) -> bool:
        """Return True if a curve that stays at the seeds' first value would be inside: the band proves no learning."""
        return bool(np.abs(self.mid_S - self.mid_S[0]).max() <= self.half)


def curve_band(values_RS: np.ndarray) -> Band:
    """Return the band of one metric, of the same width at all steps, from the curves of two or more seeds."""
    num, num_steps = values_RS.shape
    reach = max(1, num_steps // 20)
    smoothed_RS = np.array([smooth(row, reach) for row in values_RS])
    jumps_R = np.array([np.sqrt(np.nanmean(np.diff(row) ** 2) / 2) if num_steps > 1 else 0.0 for row in values_RS])
    noise = float(np.nanmedian(jumps_R)) / math.sqrt(2 * reach + 1)
    freedom = PIECES * (num - 1)
    variance = float(np.nanmean(smoothed_RS.var(axis=0, ddof=1)))
    pooled = (PRIOR * noise**2 + freedom * variance) / (PRIOR + freedom)
    num_comparisons = max(1.0, num_steps / (2 * reach + 1))
    scale = float(np.nanmax(np.abs(smoothed_RS), initial=0.0)) or 1.0
    half = _quantile(PRIOR + freedom, num_comparisons) * math.sqrt(pooled * (1 + 1 / num))
    return Band(np.nanmean(smoothed_RS, axis=0), max(half, MIN_HALF * min(1.0, scale)), reach)


@dataclass(frozen=True, slots=True)
class Level:
    """A number that each seed has once, such as a held-out reward after RL, and its standard error."""

    values: Sequence[float]
    error: float

    @property
    def mid(self) -> float:
        """Return the mean of the seeds."""
        return math.fsum(self.values) / len(self.values)


def level_halves(levels: Sequence[Level], errors: Sequence[float], num_comparisons: int) -> list[float]:
    """Return the allowed distance of a run from each level. The levels are of one kind and share an estimate of spread.

    `errors` are additional standard errors of a run that was evaluated on other tasks than the seeds. They are 0 for
    the same tasks, as the spread of the seeds does not contain the tasks' difficulty either.
    """
    squares = sum((value - level.mid) ** 2 for level in levels for value in level.values)
    freedom = sum(len(level.values) - 1 for level in levels)
    prior = math.fsum(level.error**2 for level in levels) / len(levels)
    pooled = (PRIOR * prior + squares) / (PRIOR + freedom)
    width = _quantile(PRIOR + freedom, num_comparisons)
    return [
        max(MIN_HALF, width * math.sqrt(pooled * (1 + 1 / len(level.values)) + error**2))
        for level, error in zip(levels, errors, strict=True)
    ]


def standard_error(estimate: Estimate) -> float:
    """Return the standard error of a mean with a 95% interval; 0 without an interval."""
    return 0.0 if math.isnan(estimate.low) else (estimate.high - estimate.low) / (2 * Z_95)


def _quantile(freedom: float, num_comparisons: float) -> float:
    """Return Student's two-sided quantile for the whole chance, divided by the number of comparisons."""
    return student_quantile(freedom, 1 - CHANCE / 2 / num_comparisons)
