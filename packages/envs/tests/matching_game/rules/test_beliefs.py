"""What can be worked out from numbers."""

import random
from itertools import permutations

import numpy as np
import pytest

from slimrl_envs.matching_game.rules.beliefs import (
    best_except,
    combine_beliefs,
    gains,
    likely_scale,
    worth_of,
)


@pytest.mark.parametrize("scale", [1.0, 1.7, 3.152086470460766, 6.5, 9.711752375886025])
def test_a_table_of_numbers_tells_its_scale(scale: float) -> None:
    rng = random.Random(0)
    values = [rng.randrange(100) for _ in range(26)]
    assert likely_scale([int(value * scale) for value in values]) == pytest.approx(scale, abs=0.05)
    assert likely_scale([int(80 * scale)], [80]) == pytest.approx(scale, abs=0.02)
    assert 1 <= likely_scale([5000, 7, 123456]) <= 10 and 1 <= likely_scale([]) <= 10  # which no scale explains


def test_a_joint_view_prefers_what_is_seen_and_counts_50_where_nothing_is() -> None:
    beliefs = combine_beliefs(2, {(0, 0): 30.0}, {(0, 0): 90, (1, 1): 210})
    assert beliefs[0, 0] == 30 and beliefs[0, 1] == beliefs[1, 0] == 50
    assert beliefs[1, 1] == pytest.approx(70, abs=1)  # 90 for 30 is a scale of 3


def test_the_best_of_what_is_not_refused_is_found() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        beliefs = rng.integers(0, 100, (4, 4)).astype(float)
        ranked = sorted(permutations(range(4)), key=lambda one: -worth_of(beliefs, one))
        assert worth_of(beliefs, best_except(beliefs, [])) == worth_of(beliefs, ranked[0])
        assert worth_of(beliefs, best_except(beliefs, ranked[:1])) == worth_of(beliefs, ranked[1])
    assert best_except(np.eye(2), [(0, 1), (1, 0)]) == (0, 1)  # nothing is left


def test_the_gain_of_a_question_is_what_knowing_the_answer_brings() -> None:
    """Against every value in turn, each with the whole assignment solved anew."""
    rng = np.random.default_rng(1)
    beliefs = rng.integers(0, 100, (3, 3)).astype(float)
    cells = [(0, 0), (1, 2), (2, 1)]
    for cell in cells:
        beliefs[cell] = 50.0
    worth = max(worth_of(beliefs, one) for one in permutations(range(3)))
    for cell, gained in gains(beliefs, cells).items():
        after = []
        for value in range(100):
            answered = beliefs.copy()
            answered[cell] = value
            after.append(max(worth_of(answered, one) for one in permutations(range(3))))
        assert gained == pytest.approx(0.4 * (np.mean(after) - worth))
