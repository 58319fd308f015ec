"""The order of tasks is a function of the seed."""

from collections import Counter

import pytest

from slimrl.errors import UserError
from slimrl.orchestrator.curriculum import Curriculum, Shuffle
from tests.rollout.scripted import OneTask, Quiz


def test_a_position_gives_the_same_index_in_any_order_of_asking():
    forwards, backwards = Shuffle(5, "seed"), Shuffle(5, "seed")
    assert [forwards.at(n) for n in range(20)] == [backwards.at(n) for n in reversed(range(20))][::-1]
    assert [Shuffle(5, "other").at(n) for n in range(20)] != [forwards.at(n) for n in range(20)]


def test_tasksets_take_turns_and_each_goes_through_all_its_tasks():
    small, large = OneTask(Quiz, num_tasks=2), OneTask(Quiz, num_tasks=5)
    draws = [Curriculum([small, large], "seed").draw(n) for n in range(20)]
    assert [draw.taskset for draw in draws] == [small, large] * 10
    assert Counter(draw.task.id for draw in draws if draw.taskset is large) == {f"train/{n}": 2 for n in range(5)}


def test_tasksets_of_one_size_are_shuffled_apart_and_none_is_empty():
    draws = [Curriculum([OneTask(Quiz, 9), OneTask(Quiz, 9)], "seed").draw(n).task.id for n in range(18)]
    assert draws[0::2] != draws[1::2]
    with pytest.raises(UserError, match="OneTask has no training tasks"):
        Curriculum([OneTask(Quiz, 0)], "seed")
