"""Means with 95% confidence intervals, differences and tests. Pure functions: equal numbers give equal intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

import numpy as np

NUM_RESAMPLES = 10_000
MAX_DRAWS = 1_000_000  # random indices drawn at once, which bounds the memory of the bootstrap
Z_95 = 1.959963984540054  # the 97.5% quantile of the standard normal distribution


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean of `num` values and its 95% confidence interval, `low` to `high`; both are nan if there is no interval."""

    mean: float
    low: float
    high: float
    num: int

    @property
    def interval(self) -> str:
        """The interval as text; `none` if it is nan."""
        return "none" if math.isnan(self.low) else f"{self.low:.3f} to {self.high:.3f}"


def estimate_mean(values: Sequence[float], counts: bool = False) -> Estimate:
    """Return the mean of independent values with a 95% interval. The interval is Wilson's if all values are 0 or 1, and
    are not counts (`counts`); otherwise the bootstrap's.

    Raises ValueError if there are no values, or if a value is not finite.
    """
    _check(values)
    if set(values) <= {0.0, 1.0} and not counts:
        return wilson(sum(1 for value in values if value), len(values))
    return bootstrap(values)


def bootstrap(values: Sequence[float]) -> Estimate:
    """Return the mean with the interval of the percentile bootstrap (Efron 1979), drawn with a fixed seed.

    The interval needs some tens of values to reach its coverage; with very few it is too narrow. The interval is nan if
    all values are equal, because the resamples have no spread. It never leaves the range of the values.
    """
    values_N = np.asarray(values, dtype=np.float64)
    num = len(values_N)
    mean = math.fsum(values) / num
    if len(set(values)) == 1:
        return Estimate(mean, math.nan, math.nan, num)
    rng = np.random.default_rng(0)
    means: list[np.ndarray] = []
    # Resamples are drawn in blocks of rows, as many at once as MAX_DRAWS allows.
    rows = max(1, MAX_DRAWS // num)
    for start in range(0, NUM_RESAMPLES, rows):
        shape = (min(rows, NUM_RESAMPLES - start), num)
        means.append(values_N[rng.integers(num, size=shape)].mean(axis=1))
    low, high = np.quantile(np.concatenate(means), [0.025, 0.975])
    return Estimate(mean, float(low), float(high), num)


def wilson(successes: int, num: int) -> Estimate:
    """Return a proportion with Wilson's 95% score interval (1927). Unlike the bootstrap's interval, it also has a width
    above 0 at proportions of 0 and 1."""
    share = successes / num
    scale = 1 + Z_95**2 / num
    centre = (share + Z_95**2 / (2 * num)) / scale
    half = Z_95 / scale * math.sqrt(share * (1 - share) / num + Z_95**2 / (4 * num**2))
    return Estimate(share, max(0.0, centre - half), min(1.0, centre + half), num)


def paired_difference(values: Sequence[float], others: Sequence[float]) -> Estimate:
    """Return the mean of `values - others`, paired by their index, with the bootstrap's interval. Raises ValueError if
    there are no pairs, or if a difference is not finite."""
    differences = [value - other for value, other in zip(values, others, strict=True)]
    _check(differences)
    return bootstrap(differences)


def mean_of_few(values: Sequence[float]) -> Estimate:
    """Return the mean of a few independent values, such as one per seed, with Student's interval.

    The values should be about normally distributed. The interval is nan for a single value, or if all values are equal.

    >>> mean_of_few([1.0, 2.0, 3.0]).interval
    '-0.484 to 4.484'
    """
    _check(values)
    mean, num = fmean(values), len(values)
    if len(set(values)) == 1:
        return Estimate(mean, math.nan, math.nan, num)
    half = student_quantile(num - 1) * math.sqrt(variance(values) / num)
    return Estimate(mean, mean - half, mean + half, num)


def difference_of_means(values: Sequence[float], others: Sequence[float]) -> Estimate:
    """Return the difference of the means of independent samples, `values` minus `others`, with Welch's interval (1947).

    The interval is nan if a sample has a single value, or if neither sample varies.

    >>> difference_of_means([3.0, 4.0, 5.0], [1.0, 1.0, 2.0]).interval
    '0.618 to 4.715'
    """
    _check(values)
    _check(others)
    mean, num = fmean(values) - fmean(others), len(values) + len(others)
    if min(len(values), len(others)) < 2 or len(set(values)) == len(set(others)) == 1:
        return Estimate(mean, math.nan, math.nan, num)
    parts = [(variance(side) / len(side), len(side) - 1) for side in (values, others)]
    spread = sum(part for part, _ in parts)
    # Welch and Satterthwaite's approximation of the degrees of freedom.
    half = student_quantile(spread**2 / sum(part**2 / free for part, free in parts)) * math.sqrt(spread)
    return Estimate(mean, mean - half, mean + half, num)


def correlation(values: Sequence[float], others: Sequence[float]) -> Estimate:
    """Return Pearson's correlation coefficient of independent pairs, as `mean`, with the interval of Fisher's z (1921).

    Coefficient and interval are nan if one sequence does not vary; the interval is nan for fewer than 4 pairs.

    >>> round(correlation([1, 2, 3, 4], [2, 4, 6, 8]).mean, 6)
    1.0
    """
    _check(values)
    _check(others)
    from scipy.stats import pearsonr  # slow to import

    num = len(values)
    if len(set(values)) == 1 or len(set(others)) == 1:
        return Estimate(math.nan, math.nan, math.nan, num)
    found = pearsonr(values, others)
    low, high = found.confidence_interval() if num > 3 else (math.nan, math.nan)
    return Estimate(float(found.statistic), float(low), float(high), num)


def sign_test(values: Sequence[float], others: Sequence[float]) -> float:
    """Return the p-value of the exact two-sided sign test of paired values; ties do not count.

    This is the probability that wins and losses are split at least as unevenly as observed, if both are equally likely.
    For zeros and ones the test is McNemar's exact test (McNemar 1947).

    >>> sign_test([1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 0, 0])
    0.0625
    """
    from scipy.stats import binomtest  # slow to import

    wins = sum(value > other for value, other in zip(values, others, strict=True))
    losses = sum(value < other for value, other in zip(values, others, strict=True))
    return float(binomtest(wins, wins + losses).pvalue) if wins + losses else 1.0


def student_quantile(freedom: float, share: float = 0.975) -> float:
    """Return the quantile of Student's t-distribution with `freedom` degrees of freedom at `share`."""
    from scipy.special import stdtrit  # slow to import

    return float(stdtrit(freedom, share))


def _check(values: Sequence[float]) -> None:
    if not values:
        raise ValueError("no values to take the mean of")
    if not all(math.isfinite(value) for value in values):
        raise ValueError("a non-finite value has no place in a mean")
