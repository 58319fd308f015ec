"""Rewards that see all rollouts of a task at once are added before advantages are computed."""

import math
from dataclasses import replace

import pytest

from slimrl.errors import UserError
from slimrl.orchestrator.curriculum import Draw
from slimrl.orchestrator.group_rewards import add_group_rewards
from slimrl.rollout.worker.process import Source
from slimrl.rollout.worker.taskset import load_in_worker
from slimrl.types import Rollout, StopReason
from tests.environments.dataset.files import functions, made, opened, write_rows

RANK = """
def shortest(completions, **columns):
    least = min(map(len, completions))
    return [None if not one else float(len(one) == least) for one in completions]

def breaks(completions):
    raise ValueError("no")
"""
ROWS = [{"question": "How much is 2 + 3?", "answer": 5}]


def played(taskset, reply, reward=1.0):
    (task,) = taskset.tasks("train")
    messages = (*opened(taskset), {"role": "assistant", "content": reply})
    return Rollout(task.id, (1, 2), (False, True), (0.0, -1.0), (-1, 0), reward, (reward,), messages)


def draw(taskset):
    return Draw(0, 0, taskset, taskset.tasks("train")[0])


def compared(tmp_path, name):
    reward = ["exact", {"function": f"{functions(tmp_path, RANK)}:{name}", "weight": 0.5, "group": True}]
    return made(tmp_path, ROWS, test_share=0.0, reward=reward)


def test_a_group_is_compared_and_failures_take_no_part(tmp_path):
    taskset = compared(tmp_path, "shortest")
    failed = replace(
        played(taskset, "5"), failure="timeout", reward=math.nan, turn_rewards=(), stop_reason=StopReason.FAILED
    )
    group = [played(taskset, "long reply", 0.0), failed, played(taskset, "55")]
    first, still_failed, third = add_group_rewards(group, draw(taskset))
    assert (first.reward, third.reward) == (0.0, 1.5)
    assert third.turn_rewards == (1.5,)
    assert third.metrics["reward_shortest"] == 0.5
    assert still_failed is failed


@pytest.mark.parametrize("function", ["number", "judge", "alone"])
def test_a_reward_that_compares_nothing_is_of_no_group(tmp_path, function):
    own = functions(tmp_path, "def alone(reply):\n    return 1.0\n")
    named = f"{own}:alone" if function == "alone" else function
    with pytest.raises(UserError, match="sees one reply at a time"):
        made(tmp_path, ROWS, reward=["exact", {"function": named, "group": True}])


def test_a_comparison_that_fails_drops_the_group_and_a_taskset_without_one_is_left_alone(tmp_path):
    taskset = compared(tmp_path, "breaks")
    (one,) = add_group_rewards([played(taskset, "5")], draw(taskset))
    assert one.failure == "group_reward_error" and math.isnan(one.reward)
    assert "ValueError: no" in one.failure_detail
    taskset = made(tmp_path, ROWS, test_share=0.0)
    group = (played(taskset, "5"),)
    assert add_group_rewards(group, draw(taskset)) == group


@pytest.mark.slow
@pytest.mark.parametrize("name", ["shortest", pytest.param("breaks", marks=pytest.mark.slow)])
def test_a_worker_compares_as_this_process_does(tmp_path, name):
    here = compared(tmp_path, name)
    reward = ["exact", {"function": f"{tmp_path / 'rewards.py'}:{name}", "weight": 0.5, "group": True}]
    args = {"path": str(write_rows(tmp_path / "rows.jsonl", ROWS)), "test_share": 0.0, "reward": reward}
    source = Source("dataset", args, 20.0)
    remote = load_in_worker(source)
    group = [played(here, "55"), played(here, "a longer one")]
    ours, theirs = (add_group_rewards(group, draw(taskset)) for taskset in (here, remote))
    assert [one.turn_rewards for one in ours] == [one.turn_rewards for one in theirs]
    assert [one.metrics for one in ours] == [one.metrics for one in theirs]
    assert [one.failure for one in ours] == [one.failure for one in theirs]
