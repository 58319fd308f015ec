"""Means, differences and tests against published numbers, by hand, and in how often they cover the truth."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from slimrl.stats import (
    Estimate,
    bootstrap,
    correlation,
    difference_of_means,
    estimate_mean,
    mean_of_few,
    paired_difference,
    sign_test,
    wilson,
)


@pytest.mark.parametrize(
    ("successes", "num", "interval"),
    [
        (5, 10, (0.2366, 0.7634)),
        (81, 263, (0.2553, 0.3662)),  # Newcombe 1998, table I, method 3
        (0, 20, (0.0, 0.1611)),  # the same table
    ],
)
def test_wilson_matches_published_numbers(successes: int, num: int, interval: tuple[float, float]):
    found = wilson(successes, num)
    assert (found.low, found.high) == pytest.approx(interval, abs=1e-4)
    assert estimate_mean([1.0] * successes + [0.0] * (num - successes)) == found  # zeros and ones are a proportion


def test_bootstrap_is_near_the_normal_interval_for_many_values_and_the_same_every_time():
    values = np.random.default_rng(1).uniform(size=400)
    estimate = bootstrap(values.tolist())
    half = 1.96 * values.std() / math.sqrt(400)
    assert estimate.mean == pytest.approx(values.mean(), abs=1e-12)
    assert (estimate.low, estimate.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.004)
    assert bootstrap(values.tolist()) == estimate


def correlated(rng: np.random.Generator) -> Estimate:
    x = rng.normal(size=40)
    return correlation(x.tolist(), (0.5 * x + math.sqrt(0.75) * rng.normal(size=40)).tolist())


# What is estimated how often, the truth, and the bounds of the share of intervals that cover it.
COVERED: dict[str, tuple[Callable[[np.random.Generator], Estimate], int, float, tuple[float, float]]] = {
    "bootstrap": (lambda rng: bootstrap(rng.beta(0.5, 1.5, size=60).tolist()), 150, 0.25, (0.9, 0.994)),
    "three seeds": (lambda rng: mean_of_few(rng.normal(size=3).tolist()), 1000, 0.0, (0.93, 0.97)),
    # Welch's interval is wide where there are three of each.
    "a difference": (lambda rng: difference_of_means(*rng.normal(size=(2, 3)).tolist()), 1000, 0.0, (0.93, 0.985)),
    "a correlation": (correlated, 400, 0.5, (0.92, 0.98)),
}


@pytest.mark.parametrize("case", [pytest.param("bootstrap", marks=pytest.mark.slow), *list(COVERED)[1:]])
def test_intervals_cover_the_truth_about_95_times_in_100(case: str):
    estimate, num, truth, (least, most) = COVERED[case]
    rng = np.random.default_rng(2)
    found = [estimate(rng) for _ in range(num)]
    assert least <= sum(one.low <= truth <= one.high for one in found) / num <= most


NO_INTERVAL = {
    "one value": (estimate_mean([0.3]), 0.3),
    "equal values": (estimate_mean([0.7] * 20), 0.7),
    "equal counts": (estimate_mean([1.0] * 3, counts=True), 1.0),
    "equal differences": (paired_difference([1.0, 0.0], [1.0, 0.0]), 0.0),
    "one seed": (mean_of_few([1.0]), 1.0),
    "equal seeds": (mean_of_few([2.0, 2.0, 2.0]), 2.0),
    "one seed and others": (difference_of_means([2.0], [1.0, 1.5]), 0.75),
    "equal seeds and equal others": (difference_of_means([2.0, 2.0, 2.0], [1.0, 1.0]), 1.0),
    "three pairs": (correlation([1, 2, 3], [1, 2, 4]), 0.98198),
}


@pytest.mark.parametrize("case", NO_INTERVAL)
def test_values_that_do_not_determine_an_interval_have_none(case: str):
    found, mean = NO_INTERVAL[case]
    assert found.mean == pytest.approx(mean, abs=1e-5)
    assert math.isnan(found.low) and math.isnan(found.high) and found.interval == "none"


def test_values_without_a_mean_are_refused():
    with pytest.raises(ValueError, match="no values"):
        estimate_mean([])
    with pytest.raises(ValueError, match="non-finite"):
        estimate_mean([0.1, math.nan])


def test_a_paired_difference_is_less_uncertain_than_the_means():
    rng = np.random.default_rng(3)
    hard = rng.uniform(size=100)
    first, second = (hard + 0.1 + 0.02 * rng.normal(size=100)).tolist(), hard.tolist()
    paired = paired_difference(first, second)
    assert paired.mean == pytest.approx(0.1, abs=0.01) and paired.high - paired.low < 0.02
    assert bootstrap(first).high - bootstrap(first).low > 0.08


def test_the_interval_of_three_seeds_is_students():
    found = mean_of_few([1.0, 2.0, 3.0])  # deviation 1, and 4.303 for two degrees of freedom in every table
    assert (found.mean, found.num) == (2.0, 3)
    assert found.high - 2 == pytest.approx(4.3027 / math.sqrt(3), abs=1e-4) == 2 - found.low


def test_a_difference_of_means_by_hand():
    """Variances 10 and 4 of five and four values: 2 and 1 of the means, so 3 of the difference and
    9 / (4 / 4 + 1 / 3) = 6.75 degrees of freedom, whose factor lies between those of 6 (2.447) and 7 (2.365)."""
    values = [6.0, 8.0, 10.0, 12.0, 14.0]
    others = [2.0 - math.sqrt(6), 2.0, 2.0, 2.0 + math.sqrt(6)]
    found, back = difference_of_means(values, others), difference_of_means(others, values)
    assert (found.mean, found.num) == (pytest.approx(8.0), 9)
    assert 2.365 * math.sqrt(3) < found.high - 8 < 2.447 * math.sqrt(3)
    assert 8 - found.low == pytest.approx(found.high - 8)
    assert (back.low, back.high) == (pytest.approx(-found.high), pytest.approx(-found.low))
    assert difference_of_means([2.0, 2.0], [0.0, 0.1, 0.2]).low > 1.5  # one side that varies is enough


def test_the_sign_test_is_exact():
    assert sign_test([1, 1, 1, 0, 0], [0, 0, 0, 0, 0]) == 0.25
    assert sign_test([0, 1], [0, 1]) == 1.0 and sign_test([0, 1], [1, 0]) == 1.0
    right, wrong = [1.0] * 10 + [0.0] * 2, [0.0] * 10 + [1.0] * 2
    assert sign_test(right, wrong) == pytest.approx(0.03857421875)  # R: binom.test(10, 12)
    assert sign_test([1.0] * 3000, [0.0] * 3000) < 1e-300  # and no overflow


def test_a_correlation_and_its_interval_match_fisher():
    found = correlation([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], [2.0, 1.0, 4.0, 3.0, 7.0, 5.0, 6.0])
    assert (found.mean, found.num) == (pytest.approx(23 / 28), 7)  # both have the sum of squares 28
    z, half = math.atanh(23 / 28), 1.959964 / math.sqrt(4)
    assert (found.low, found.high) == pytest.approx((math.tanh(z - half), math.tanh(z + half)))
    assert correlation([1, 2, 3, 4], [-2, -4, -6, -8]).mean == pytest.approx(-1)
    assert math.isnan(correlation([1.0, 2.0, 3.0, 4.0], [0.1] * 4).mean)  # with what does not vary there is none
