import math

import numpy as np
import pytest

from slimrl.stats import (
    bootstrap,
    correlation,
    difference_of_means,
    estimate_mean,
    mean_of_few,
    paired_difference,
    sign_test,
    wilson,
)


def test_wilson_matches_published_numbers():
    half = wilson(5, 10)
    assert (half.low, half.high) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    some = wilson(81, 263)  # Newcombe 1998, table I, method 3
    assert (some.low, some.high) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    none = wilson(0, 20)  # the same table
    assert (none.low, none.high) == pytest.approx((0.0, 0.1611), abs=1e-4)


def test_bootstrap_is_near_the_normal_interval_for_many_values():
    values = np.random.default_rng(1).uniform(size=400)
    estimate = bootstrap(values.tolist())
    half = 1.96 * values.std() / math.sqrt(400)
    assert estimate.mean == pytest.approx(values.mean(), abs=1e-12)
    assert (estimate.low, estimate.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.004)


@pytest.mark.slow
def test_bootstrap_covers_the_true_mean_about_95_times_in_100():
    rng = np.random.default_rng(2)
    draws = [bootstrap(rng.beta(0.5, 1.5, size=60).tolist()) for _ in range(150)]
    covered = sum(draw.low <= 0.25 <= draw.high for draw in draws)
    assert 135 <= covered <= 149


def test_same_values_give_the_same_interval():
    values = [0.1, 0.2, 0.9, 0.4]
    assert bootstrap(values) == bootstrap(values)


def test_zeros_and_ones_get_a_proportion_interval():
    assert estimate_mean([0.0] * 20) == wilson(0, 20)
    assert estimate_mean([1, 0, 1, 1]) == wilson(3, 4)


def test_one_value_has_no_interval():
    estimate = estimate_mean([0.3])
    assert estimate.mean == 0.3
    assert math.isnan(estimate.low)
    assert estimate.interval == "none"


def test_equal_values_have_no_interval():
    estimate = estimate_mean([0.7] * 20)
    assert estimate.mean == pytest.approx(0.7, abs=1e-15) and estimate.num == 20
    assert estimate.interval == "none"


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


def test_equal_differences_have_no_interval():
    assert math.isnan(paired_difference([1.0, 0.0], [1.0, 0.0]).low)


def test_the_interval_of_three_seeds_is_students():
    found = mean_of_few([1.0, 2.0, 3.0])  # deviation 1, and 4.303 for two degrees of freedom in every table
    assert found.mean == 2.0 and found.num == 3
    assert found.high - 2 == pytest.approx(4.3027 / math.sqrt(3), abs=1e-4) and 2 - found.low == pytest.approx(
        found.high - 2
    )


def test_few_values_cover_the_true_mean_as_often_as_is_said():
    rng = np.random.default_rng(5)
    samples = rng.normal(size=(1000, 3))
    covered = sum(found.low < 0 < found.high for found in (mean_of_few(sample.tolist()) for sample in samples))
    assert 930 < covered < 970


def test_a_difference_of_means_by_hand():
    """Variances 10 and 4 of five and four values: 2 and 1 of the means, so 3 of the difference and
    9 / (4 / 4 + 1 / 3) = 6.75 degrees of freedom, whose factor lies between those of 6 (2.447) and 7 (2.365)."""
    values = [6.0, 8.0, 10.0, 12.0, 14.0]
    others = [2.0 - math.sqrt(6), 2.0, 2.0, 2.0 + math.sqrt(6)]
    found = difference_of_means(values, others)
    assert (found.mean, found.num) == (pytest.approx(8.0), 9)
    assert 2.365 * math.sqrt(3) < found.high - 8 < 2.447 * math.sqrt(3)
    assert 8 - found.low == pytest.approx(found.high - 8)
    back = difference_of_means(others, values)
    assert (back.low, back.high) == (pytest.approx(-found.high), pytest.approx(-found.low))


def test_a_difference_of_two_small_samples_covers_the_true_one_as_often_as_is_said():
    rng = np.random.default_rng(6)
    found = [difference_of_means(*rng.normal(size=(2, 3)).tolist()) for _ in range(1000)]
    assert 930 < sum(one.low < 0 < one.high for one in found) < 985  # Welch's is wide where there are three of each


@pytest.mark.parametrize("values", [[1.0], [2.0, 2.0], [2.0, 2.0, 2.0]])
def test_what_does_not_vary_has_no_interval_by_student_either(values: list[float]):
    assert math.isnan(mean_of_few(values).low) and mean_of_few(values).mean == values[0]
    assert math.isnan(difference_of_means(values, [1.0, 1.0]).low)


def test_a_side_that_varies_is_enough_for_a_difference():
    assert difference_of_means([2.0, 2.0], [0.0, 0.1, 0.2]).low > 1.5


def test_the_sign_test_is_exact():
    assert sign_test([1, 1, 1, 0, 0], [0, 0, 0, 0, 0]) == 0.25
    assert sign_test([0, 1], [0, 1]) == 1.0 and sign_test([0, 1], [1, 0]) == 1.0
    right, wrong = [1.0] * 10 + [0.0] * 2, [0.0] * 10 + [1.0] * 2
    assert sign_test(right, wrong) == pytest.approx(0.03857421875)  # R: binom.test(10, 12)
    assert sign_test([1.0] * 3000, [0.0] * 3000) < 1e-300  # and no overflow


def test_a_correlation_and_its_interval_match_fisher():
    x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    y = [2.0, 1.0, 4.0, 3.0, 7.0, 5.0, 6.0]
    found = correlation(x, y)
    assert found.mean == pytest.approx(23 / 28)  # both have the sum of squares 28
    z, half = math.atanh(23 / 28), 1.959964 / math.sqrt(4)
    assert (found.low, found.high) == pytest.approx((math.tanh(z - half), math.tanh(z + half)))
    assert found.num == 7


def test_a_correlation_covers_the_true_one_about_95_times_in_100():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(400):
        x = rng.normal(size=40)
        found = correlation(x.tolist(), (0.5 * x + math.sqrt(0.75) * rng.normal(size=40)).tolist())
        hits += found.low <= 0.5 <= found.high
    assert 0.92 < hits / 400 < 0.98


def test_there_is_no_correlation_with_what_does_not_vary():
    found = correlation([1.0, 2.0, 3.0, 4.0], [0.1, 0.1, 0.1, 0.1])
    assert math.isnan(found.mean) and math.isnan(found.low) and math.isnan(found.high)


def test_few_pairs_have_a_correlation_without_an_interval():
    assert correlation([1, 2, 3], [1, 2, 4]).interval == "none"
    assert correlation([1, 2, 3, 4], [-2, -4, -6, -8]).mean == pytest.approx(-1)


def test_counts_have_no_interval_of_a_share():
    assert estimate_mean([1.0, 1.0, 1.0]).low < 1.0
    assert math.isnan(estimate_mean([1.0, 1.0, 1.0], counts=True).low)
