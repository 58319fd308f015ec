"""Held-out evaluation with a policy that says numbers."""

from dataclasses import replace

import pytest

from slimrl.errors import UserError
from slimrl.eval.evaluate import (
    evaluation_metrics,
    evaluation_of,
    make_eval_policy,
    mode_of,
    play_tasks,
    tasks_held_out,
)
from slimrl.monitor.metrics import lookup
from slimrl.stats import estimate_mean
from slimrl.types import SamplingParams, Turn
from tests.rollout.scripted import DigitClient, OneTask, make_context, user


class Digit:
    """The reward is the digit / 10; every fifth task is broken."""

    def __init__(self, task) -> None:
        self._number = task.data["number"]

    async def start(self):
        return [user(f"task {self._number}")]

    async def step(self, reply):
        if self._number % 5 == 4:
            raise ValueError("broken")
        return Turn(done=True, reward=int(reply) / 10, metrics={"odd": int(reply) % 2, "reward": 77.0})


TASKSET = OneTask(Digit, num_tasks=40)


def played(tasks, sampling=None, on_done=lambda rollout: None):
    eval_policy = make_eval_policy(make_context(DigitClient()))
    return play_tasks(tasks, eval_policy, sampling or SamplingParams(max_tokens=8), on_done)


def outcomes(rollouts):
    """The rollouts without their times, as texts, in which nan equals itself."""
    return [repr(replace(rollout, env_s=())) for rollout in rollouts]


def evaluated(seed: int = 0, temperature: float = 1.0, num: int = 40):
    tasks = tasks_held_out({"digit": TASKSET}, "test", num)
    sampling = SamplingParams(max_tokens=8, temperature=temperature, seed=seed)
    return evaluation_of(mode_of(temperature), played(tasks, sampling))


def test_failures_are_counted_and_left_out_of_the_mean():
    evaluation = evaluated()
    rewards = [rollout.reward for rollout in evaluation.rollouts if not rollout.failure]
    assert len(evaluation.rollouts) == 40
    assert evaluation.failures == {"environment_error": 8}
    assert evaluation.reward == estimate_mean(rewards)
    assert evaluation.reward.num == len(rewards) == 32
    assert evaluation.reward.low < evaluation.reward.mean < evaluation.reward.high
    assert evaluation.scores["odd"] == estimate_mean([float(round(10 * reward) % 2) for reward in rewards])
    assert evaluation.scores["turns"].mean == 1.0
    assert evaluation.scores["tokens"].mean == 2.0  # the digit and the end of the turn


def test_the_same_seed_gives_the_same_result_however_many_other_tasks_there_are():
    assert repr(evaluated(seed=3).scores) == repr(evaluated(seed=3).scores)  # in which nan equals itself
    assert outcomes(evaluated(seed=3).rollouts) == outcomes(evaluated(seed=3).rollouts)
    assert evaluated(seed=3).rollouts != evaluated(seed=4).rollouts
    few, many = evaluated(num=10).rollouts, evaluated().rollouts
    ids = {rollout.task_id for rollout in few}
    assert len(ids) == 10 and outcomes(few) == outcomes(rollout for rollout in many if rollout.task_id in ids)
    assert len({rollout.messages[-1]["content"] for rollout in many}) > 5  # every task has a seed of its own


def test_every_episode_is_told_as_it_ends():
    done = {}
    tasks = tasks_held_out({"digit": TASKSET}, "test", 7)
    rollouts = played(tasks, on_done=lambda rollout: done.update({rollout.task_id: rollout}))
    assert done == {asked.id: rollout for asked, rollout in zip(tasks, rollouts, strict=True)}


def test_failures_alone_and_no_tasks_are_a_user_error():
    broken = [asked for asked in tasks_held_out({"digit": TASKSET}, "test", 40) if asked.task.data["number"] % 5 == 4]
    with pytest.raises(UserError, match="all 8 episodes failed; the first: environment_error: ValueError: broken"):
        evaluation_of("greedy", played(broken))
    with pytest.raises(UserError, match="no tasks in the split `test`"):
        tasks_held_out({"digit": OneTask(Digit, 0)}, "test", 3)


def test_tasks_of_every_taskset_are_drawn_in_their_order():
    other = OneTask(Digit, num_tasks=2)
    chosen = tasks_held_out({"digit": TASKSET, "digit-2": other}, "test", 3)
    numbers = [asked.task.data["number"] for asked in chosen]
    assert [asked.taskset for asked in chosen] == [TASKSET] * 3 + [other] * 2
    assert numbers[:3] == sorted(numbers[:3]) and numbers[3:] == [0, 1]
    assert chosen[0].id == f"digit/test/{numbers[0]}"
    assert chosen == tasks_held_out({"digit": TASKSET, "digit-2": other}, "test", 3)


@pytest.mark.parametrize("num", [10, 20, 39])
def test_of_a_sorted_split_all_parts_are_drawn(num):
    drawn = [asked.task.data["number"] for asked in tasks_held_out({"digit": TASKSET}, "test", num)]
    halves = sum(number < 20 for number in drawn), sum(number >= 20 for number in drawn)
    assert min(halves) >= num // 4 and len(set(drawn)) == num
    assert set(drawn) < {asked.task.data["number"] for asked in tasks_held_out({"digit": TASKSET}, "test", num + 1)}


def test_metrics_are_registered_and_hold_the_interval():
    greedy, sampled = evaluated(temperature=0.0), evaluated(temperature=1.0)
    metrics = evaluation_metrics([greedy, sampled])
    for name in metrics:
        lookup(name)
    assert metrics["held_out/num"] == 32
    assert metrics["held_out/reward_greedy"] == greedy.reward.mean  # not the environment's score called `reward`
    assert metrics["held_out/reward_sampled_low"] == sampled.reward.low
    assert metrics["held_out/reward_sampled_high"] == sampled.reward.high
    assert metrics["held_out/odd_greedy"] == greedy.scores["odd"].mean
    few = evaluated(temperature=0.0, num=10)
    assert evaluation_metrics([few, sampled])["held_out/num"] == few.reward.num < sampled.reward.num
    assert [mode_of(temperature) for temperature in (0.0, 1.0, 0.7)] == ["greedy", "sampled", "sampled_0.7"]
