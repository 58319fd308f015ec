"""Environments of verifiers 0.1.14, unmodified, played by slimrl's agent loop."""

import json

import pytest

from packages.envs.tests.verifiers.plays import assert_unpaid, has_verifiers, play
from slimrl.environments.find import load_taskset, tasks_of
from slimrl.errors import RolloutError, UserError

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not has_verifiers("0.1."), reason="verifiers 0.1 is not installed")]
ID = "verifiers:slim-classic"


@pytest.fixture(autouse=True)
def no_progress_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TQDM_DISABLE", "1")


def call(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def test_one_turn_is_scored_by_the_rubric():
    taskset = load_taskset(ID, {})
    task = tasks_of(taskset, "train")[0]
    opening, (turn,) = play(taskset, task, [task.data["answer"]])
    assert [message["role"] for message in opening] == ["system", "user"]
    assert turn.done and turn.reward == 1.0 and turn.metrics == {"right": 1.0, "num_turns": 1.0}
    assert play(taskset, task, ["nobody"])[1][0].reward == 0.0


def test_several_turns():
    taskset = load_taskset(ID, {"kind": "several"})
    task = tasks_of(taskset, "train")[0]
    _, turns = play(taskset, task, ["a", "b", task.data["answer"]])
    assert [turn.done for turn in turns] == [False, False, True]
    assert turns[1].messages == [{"role": "user", "content": "again 2"}]
    assert turns[-1].reward == 1.0


def test_tools_are_called_natively():
    taskset = load_taskset(ID, {"kind": "tools"})
    task = next(task for task in tasks_of(taskset, "train") if "Oslo" in task.data["question"])
    opening, turns = play(taskset, task, [call("mayor", city="Oslo"), "It is Bo."])
    assert opening[0]["tools"][0]["function"]["name"] == "mayor"
    assert turns[0].messages == [{"role": "tool", "content": "Bo"}]
    assert turns[-1].reward == 1.0 and turns[-1].metrics["mayor_calls"] == 1.0


def test_splits_are_apart():
    alone = load_taskset(ID, {})
    train, test = tasks_of(alone, "train"), tasks_of(alone, "test")
    assert train and test and not {task.data["question"] for task in train} & {task.data["question"] for task in test}
    both = load_taskset(ID, {"has_tests": True})
    assert (len(tasks_of(both, "train")), len(tasks_of(both, "test")), tasks_of(both, "validation")) == (20, 3, [])


def test_a_context_that_is_rewritten_is_branched():
    taskset = load_taskset(ID, {"kind": "forgetful"})
    with pytest.raises(RolloutError) as caught:
        play(taskset, tasks_of(taskset, "train")[0], ["a"])
    assert caught.value.reason == "branched"


def test_an_error_of_the_environment_is_no_reward():
    taskset = load_taskset(ID, {"kind": "broken"})
    with pytest.raises(RolloutError, match="the box is gone") as caught:
        play(taskset, tasks_of(taskset, "train")[0], ["a"])
    assert caught.value.reason == "environment_error"


def test_rewards_of_groups_are_refused():
    with pytest.raises(UserError, match="scores all rollouts of a group at once"):
        load_taskset(ID, {"kind": "group"})


def test_a_missing_package_is_named():
    with pytest.raises(UserError, match="no-such-taskset"):
        load_taskset("verifiers:no-such-taskset", {})


@pytest.mark.parametrize("kind", ["single", "several", "tools"])
def test_hostile_replies_earn_nothing(kind):
    taskset = load_taskset(ID, {"kind": kind})
    assert_unpaid(taskset, tasks_of(taskset, "train")[0])
