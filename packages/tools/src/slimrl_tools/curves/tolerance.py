"""Computes how far a run may be from the recorded runs of its recipe: bands for curves and for single numbers.

A recipe has few recorded runs (seeds), mostly three, so their spread is a poor estimate. The variance of the runs is
pooled with a second estimate, which has `PRIOR` degrees of freedom and needs only one run: it uses the jumps of a curve
between steps, or the interval of an evaluation's mean. The width of a band follows Student's distribution for the
difference between one further run and the mean of the recorded runs. The error probability is divided among all
comparisons (Bonferroni). Axes: `_R` runs, `_S` steps.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slimrl.monitor.series import smooth
from slimrl.stats import student_quantile

CHANCE = 0.005  # probability that a normal run leaves the band of its curve, and the same for its evaluations
PRIOR = 4.0
# Neighbouring steps of a smoothed curve are correlated, so a curve counts as about this many independent values.
PIECES = 4
MIN_HALF = 0.02  # smallest half width of a band for values up to 1; smaller differences do not matter


@dataclass(frozen=True, slots=True)
class Band:
    """The band for a run's smoothed curve. `mid_S` is the mean of the recorded runs at each step, and `half` is half
    the width. Curves are smoothed over `reach` steps on each side (`series.smooth`)."""

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


def curve_band(values_RS: np.ndarray) -> Band:
    """Return the band of one metric from the curves of two or more recorded runs. Its width is the same at all
    steps."""
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


def level_half(values: Sequence[float], error: float, num_comparisons: int) -> float:
    """Return the largest allowed distance of a further run from the mean of `values`, which has one quantity, such as
    the held-out reward after RL, of each recorded run. `error` is the standard error of one value."""
    freedom = len(values) - 1
    pooled = (PRIOR * error**2 + freedom * float(np.var(values, ddof=1))) / (PRIOR + freedom)
    width = _quantile(PRIOR + freedom, num_comparisons)
    return max(MIN_HALF, width * math.sqrt(pooled * (1 + 1 / len(values))))


def _quantile(freedom: float, num_comparisons: float) -> float:
    return student_quantile(freedom, 1 - CHANCE / 2 / num_comparisons)
