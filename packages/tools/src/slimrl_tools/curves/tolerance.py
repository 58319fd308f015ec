"""Computes how far a run may be from the recorded seeds of its recipe: bands for curves and for single numbers.

A recipe has few seeds, mostly three, so they give a poor estimate of the spread. It is pooled with a second estimate,
which has `PRIOR` degrees of freedom and needs only one run: the jumps of a curve from step to step, or the interval of
an evaluation's mean. The width of a band follows Student's distribution for the difference between one further run and
the mean of the seeds. The error probability is divided among all comparisons (Bonferroni). Axes: `_R` runs, `_S` steps.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slimrl.monitor.series import smooth
from slimrl.stats import student_quantile

CHANCE = 0.005  # probability that a run like the seeds leaves a band: once for the curve, once for the evaluations
PRIOR = 4.0
# Neighbouring steps of a smoothed curve are correlated: a run has about this many independent pieces.
PIECES = 4
MIN_HALF = 0.02  # smallest half width for a range of 1: smaller differences are of no interest


@dataclass(frozen=True, slots=True)
class Band:
    """The band for a run's smoothed curve: the mean of the seeds at each step, and half the width of the band. `reach`
    is the smoothing of the seeds and of the run (`series.smooth`)."""

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
        """Return True if a constant curve at the seeds' first value would be inside, so that the band proves no
        learning."""
        return bool(np.abs(self.mid_S - self.mid_S[0]).max() <= self.half)


def curve_band(values_RS: np.ndarray) -> Band:
    """Return the band of one metric from the curves of two or more seeds. Its width is the same at all steps."""
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
    """One number per seed, such as the held-out reward after RL, and the standard error of such a number."""

    values: Sequence[float]
    error: float

    @property
    def mid(self) -> float:
        """Return the mean of the seeds."""
        return math.fsum(self.values) / len(self.values)


def level_halves(levels: Sequence[Level], errors: Sequence[float], num_comparisons: int) -> list[float]:
    """Return a run's allowed distance from the mean of each level. The levels are of one kind, and share one estimate
    of the spread.

    `errors` has an additional standard error per level for a run that was evaluated on other tasks than the seeds. It
    is 0 for the same tasks, whose difficulty is equal for the run and the seeds.
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


def _quantile(freedom: float, num_comparisons: float) -> float:
    """Return Student's two-sided quantile for the probability `CHANCE / num_comparisons`."""
    return student_quantile(freedom, 1 - CHANCE / 2 / num_comparisons)
