"""Rollouts of a policy that plays against itself: compared within a role, or with what the role earned before."""

import asyncio
import json
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from slimrl.config.loss import ADVANTAGES, LossConfig
from slimrl.errors import UserError
from slimrl.eval.evaluate import make_eval_policy, play_tasks, tasks_held_out
from slimrl.orchestrator.advantages import turn_advantages
from slimrl.orchestrator.orchestrator import Orchestrator
from slimrl.orchestrator.roles import role_advantages, update_mean
from slimrl.types import Rollout, SamplingParams, Task, Taskset, Turn
from tests.orchestrator.made import Records, make_orchestrator
from tests.rollout.scripted import DigitClient, make_context, user


def rollout(reward: float, role: str = "", turns: int = 1) -> Rollout:
    mask = (False, True) * turns
    zeros = (0.0,) * len(mask)
    earned = (*(0.0,) * (turns - 1), reward)
    return Rollout("t", (1,) * len(mask), mask, zeros, (0,) * len(mask), reward, earned, role=role)


def loss(advantage: str, **numbers: float) -> Any:
    return LossConfig(advantage=advantage, **numbers).resolve()


def test_each_role_is_compared_with_its_own_mean_in_all_turns():
    group = [rollout(1.0, "a"), rollout(10.0, "b"), rollout(0.0, "a"), rollout(8.0, "b")]
    assert role_advantages(group, loss("dr_grpo"), {}, "0") == [(0.5,), (1.0,), (-0.5,), (-1.0,)]
    group = [rollout(1.0, "a", turns=2), rollout(5.0, "b", turns=3), rollout(0.0, "a"), rollout(5.0, "b")]
    assert role_advantages(group, loss("dr_grpo"), {}, "0") == [(0.5, 0.5), (0.0, 0.0, 0.0), (-0.5,), (0.0,)]


@pytest.mark.parametrize("advantage", [name for name in ADVANTAGES if name != "rae"])
def test_without_roles_nothing_changes(advantage):
    rng = random.Random(advantage)
    group = [rollout(rng.random(), turns=rng.randrange(1, 4)) for _ in range(6)]
    means: dict[str, float] = {}
    expected = [tuple(values) for values in turn_advantages(group, loss(advantage))]
    assert role_advantages(group, loss(advantage), means, "0") == expected
    assert not means


def test_a_running_mean_by_hand():
    means: dict[str, float] = {}
    rae = loss("rae", decay=0.5)
    first = role_advantages([rollout(1.0, "a"), rollout(0.0, "a"), rollout(3.0, "b")], rae, means, "0")
    assert first == [(0.5,), (-0.5,), (0.0,)]  # nothing came before: their own mean
    assert means == {"0/a": 0.5, "0/b": 3.0}
    second = role_advantages([rollout(1.0, "a"), rollout(1.0, "a"), rollout(1.0, "b")], rae, means, "0")
    assert second == [(0.5,), (0.5,), (-2.0,)]
    assert means == {"0/a": 0.875, "0/b": 2.0}

    # It compares equal rewards too, for each game apart, and forgets at its rate.
    assert role_advantages([rollout(1.0), rollout(1.0)], loss("rae"), {"0/": 0.25}, "0") == [(0.75,), (0.75,)]
    role_advantages([rollout(5.0, "a")], rae, means, "1")
    assert means == {"0/a": 0.875, "0/b": 2.0, "1/a": 5.0}
    update_mean(means, "1/a", [0.0] * 3, 0.9)
    assert means["1/a"] == pytest.approx(5 * 0.9**3)


@dataclass
class Pair(Taskset):
    """Two at a table: each earns its digit / 10, the second 1 more."""

    roles: tuple[str, ...] = ("first", "second")
    broken: set[str] = field(default_factory=set)

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{split}/{number}", {}) for number in range(20)]

    def environment(self, task: Task) -> Any:
        return Digit(0.0)

    def self_play(self, task: Task) -> list[Any]:
        return [Digit(float(place), role in self.broken) for place, role in enumerate(self.roles)]


@dataclass
class Digit:
    more: float
    is_broken: bool = False

    async def start(self):
        return [user("a digit")]

    async def step(self, reply):
        if self.is_broken:
            raise ValueError("broken")
        return Turn(done=True, reward=int(reply) / 10 + self.more)


def collector(taskset: Pair, advantage: str = "dr_grpo", group: int = 8) -> tuple[Orchestrator, Records]:
    records: Records = {}
    sizes = {"batch_size": 2 * group, "rollouts_per_example": group}
    return make_orchestrator([taskset], records, loss=loss(advantage), **sizes), records


def test_a_group_has_as_many_rollouts_of_each_role_and_one_size():
    orchestrator, records = collector(Pair())
    batch = orchestrator.collect(0)
    roles = [record.rollout.role for record in records[0]]
    assert len(batch.samples) == 16
    assert (roles.count("first"), roles.count("second")) == (8, 8)
    seconds = [r for r in records[0] if r.rollout.role == "second"]
    assert all(1.0 <= record.rollout.reward < 2.0 for record in seconds)
    by_group = [sum(record.advantages[0] for record in seconds[start : start + 4]) for start in (0, 4)]
    assert by_group == pytest.approx([0.0, 0.0])  # each role's advantages have the mean 0: the 1 more is not compared


def test_an_uneven_group_is_refused_at_once():
    with pytest.raises(UserError, match=r"rollouts_per_example` = 3.*2 roles.*multiple of 2"):
        collector(Pair(), group=3)


def test_a_single_rollout_of_each_role_is_refused_unless_it_is_compared_with_the_past():
    with pytest.raises(UserError, match=r"single rollout in a group, and nothing to be compared with\. Set it to 4"):
        collector(Pair(), group=2)
    batch = collector(Pair(), "rae", group=2)[0].collect(1)
    assert batch.samples


def test_one_role_that_fails_costs_its_own_rollouts():
    orchestrator, records = collector(Pair(broken={"second"}))
    batch = orchestrator.collect(0)
    assert batch.metrics["drop/environment_error"] == 8
    assert {record.rollout.role for record in records[0] if not record.rollout.failure} == {"first"}


def test_running_means_go_with_the_batch_and_a_continued_run_goes_on_from_them():
    straight, _ = collector(Pair(), "rae")
    batches = [straight.collect(step) for step in range(3)]
    means = [batch.orchestrator_state["role_means"] for batch in batches]
    assert set(means[0]) == {"0/first", "0/second"}
    assert means[1] != means[2]
    continued, _ = collector(Pair(), "rae")
    continued.restore(json.loads(json.dumps(batches[1].orchestrator_state)))
    again = continued.collect(2)
    assert (again.samples, again.orchestrator_state) == (batches[2].samples, batches[2].orchestrator_state)


class CountingClient(DigitClient):
    """Notes the largest number of requests at once."""

    def __init__(self):
        self.now = self.most = 0

    async def sample(self, prompt, params):
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        return await super().sample(prompt, params)


def test_an_evaluation_in_self_play_keeps_within_the_samplers_places():
    client = CountingClient()
    tasks = tasks_held_out({"pair": Pair()}, "test", 20)
    play_tasks(tasks, make_eval_policy(make_context(client)), SamplingParams(max_tokens=8), lambda rollout: None)
    assert 2 <= client.most <= make_context(client).num_concurrent


def test_the_first_role_counts_in_an_evaluation():
    eval_policy = make_eval_policy(make_context(DigitClient()))
    tasks = tasks_held_out({"pair": Pair()}, "test", 5)
    rollouts = play_tasks(tasks, eval_policy, SamplingParams(max_tokens=8), lambda rollout: None)
    assert [rollout.role for rollout in rollouts] == ["first"] * 5
    assert all(rollout.reward < 1.0 for rollout in rollouts)
