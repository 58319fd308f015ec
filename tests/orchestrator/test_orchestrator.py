"""From tasks to batches, with a policy that says numbers and environments that are good, dull or broken."""

import random
from dataclasses import dataclass, field

import pytest

from slimrl.config.loss import LossConfig
from slimrl.errors import UserError
from slimrl.monitor.metrics import lookup
from slimrl.orchestrator.orchestrator import Orchestrator
from slimrl.types import Sample, Task, Turn
from tests.orchestrator.made import Records, make_orchestrator
from tests.rollout.scripted import LOGPROB, TOKENIZER, VERSION, OneTask, user


class Digits:
    """The reward is the digit / 10. Tasks of number `dull` give all the same, those of number `broken` raise, and those
    of number `shaky` raise for digits below 5; numbers are taken modulo 10."""

    def __init__(self, task: Task, dull: set[int], broken: set[int], shaky: set[int]) -> None:
        self._number = task.data["number"]
        self._dull, self._broken, self._shaky = ({self._number % 10} <= kind for kind in (dull, broken, shaky))

    async def start(self):
        return [user(f"task {self._number}")]

    async def step(self, reply):
        if self._broken or (self._shaky and int(reply) < 5):
            raise ValueError("broken")
        return Turn(done=True, reward=0.3 if self._dull else int(reply) / 10, metrics={"digit": int(reply)})


@dataclass
class Table:
    """An orchestrator over 30 tasks, and what it recorded."""

    dull: set[int] = field(default_factory=set)
    broken: set[int] = field(default_factory=set)
    shaky: set[int] = field(default_factory=set)
    records: Records = field(default_factory=dict)

    def orchestrator(self, loss: str = "aipo", **config) -> Orchestrator:
        taskset = OneTask(lambda task: Digits(task, self.dull, self.broken, self.shaky), num_tasks=30)
        return make_orchestrator([taskset], self.records, loss=LossConfig(type=loss).resolve(), **config)


def dropped(metrics) -> float:
    return sum(value for name, value in metrics.items() if name.startswith("drop/"))


def by_prompt(samples) -> list[list[Sample]]:
    """The groups: rollouts of one task have one prompt, and sample two tokens."""
    groups = {}
    for sample in samples:
        groups.setdefault(sample.token_ids_T[:-2], []).append(sample)
    return list(groups.values())


def test_a_batch_of_good_groups():
    table = Table()
    orchestrator = table.orchestrator()
    batch = orchestrator.collect(0)
    assert len(batch.samples) == 12
    assert batch.temperature == 0.9
    assert batch.orchestrator_state == orchestrator.state
    empty = {"role_means": {}, "waiting": [], "in_flight": []}
    assert batch.orchestrator_state == {"data_position": 3, "num_environments": 1, **empty}
    groups = by_prompt(batch.samples)
    assert len(groups) == 3
    for group in groups:
        rewards = [int(TOKENIZER.decode(sample.token_ids_T[-2])) / 10 for sample in group]
        assert len(group) == 4
        assert [sample.advantages_T[-1] for sample in group] == pytest.approx([r - sum(rewards) / 4 for r in rewards])
        for sample in group:
            assert sample.version == VERSION
            assert sample.advantages_T[:-1] == (0.0,) * (len(sample.token_ids_T) - 2) + sample.advantages_T[-1:]
            assert sample.loss_mask_T == (False,) * (len(sample.token_ids_T) - 2) + (True, True)
            assert sample.logprobs_T[-2:] == (LOGPROB, LOGPROB)
    for name in batch.metrics:
        lookup(name)
    rewards = [record.rollout.reward for record in table.records[0]]
    assert batch.metrics["reward/mean"] == pytest.approx(sum(rewards) / 12)
    assert (batch.metrics["reward/min"], batch.metrics["reward/max"]) == (min(rewards), max(rewards))
    assert batch.metrics["env/digit"] == pytest.approx(sum(rewards) / 12 * 10)
    assert batch.metrics["rollout/tokens_sampled"] == 24
    assert batch.metrics["rollout/num"] == batch.metrics["rollout/num_trained"] == 12
    assert dropped(batch.metrics) == 0


@pytest.mark.parametrize("case", range(12))
def test_rollouts_started_are_trained_or_dropped(case):
    rng = random.Random(case)
    kinds = [set(rng.sample(range(10), rng.randrange(5))) for _ in range(3)]
    table = Table(*kinds)
    orchestrator = table.orchestrator(resample_factor=rng.choice([1, 2, 4]))
    for step in range(4):
        batch = orchestrator.collect(step)
        assert batch.metrics["rollout/num"] == batch.metrics["rollout/num_trained"] + dropped(batch.metrics)
        assert batch.metrics["rollout/num_trained"] == len(batch.samples)
        assert batch.metrics["rollout/num"] == len(table.records[step])
        for group in by_prompt(batch.samples):
            assert any(any(sample.advantages_T) for sample in group)
        records = table.records[step]
        assert batch.metrics.get("drop/environment_error", 0.0) == sum(bool(r.rollout.failure) for r in records)
        for sample in batch.samples:  # each knows its line in the file
            record = records[sample.row]
            assert record.rollout.token_ids_T == sample.token_ids_T
            assert record.rollout.logprobs_T == sample.logprobs_T
            assert record.advantages == (sample.advantages_T[-1],)
            assert record.text == TOKENIZER.decode(sample.token_ids_T)


def test_groups_without_a_signal_are_replaced_while_there_are_others():
    table = Table(dull={0, 1, 2, 3, 4})
    batch = table.orchestrator(batch_size=40, resample_factor=3).collect(0)
    assert len(batch.samples) == 40
    zero_signal = batch.metrics["drop/zero_signal"]
    assert zero_signal > 0
    assert zero_signal == batch.metrics["rollout/num"] - 40
    drawn = batch.orchestrator_state["data_position"]
    assert batch.metrics["reward/zero_signal_groups"] == pytest.approx((drawn - 10) / drawn)


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_replacing_stops_at_its_bound(factor):
    table = Table(dull=set(range(10)))
    orchestrator = table.orchestrator(resample_factor=factor)
    batch = orchestrator.collect(0)
    assert batch.samples == ()
    assert orchestrator.state == batch.orchestrator_state
    assert batch.orchestrator_state["data_position"] == 3 * factor
    assert batch.metrics["rollout/num"] == batch.metrics["drop/zero_signal"] == 12 * factor
    assert batch.metrics["reward/zero_signal_groups"] == 1.0
    assert orchestrator.collect(1).orchestrator_state["data_position"] == 6 * factor  # and the run goes on


def test_a_constant_baseline_learns_from_equal_rewards_too():
    batch = Table(dull=set(range(10))).orchestrator(loss="reinforce").collect(0)
    assert len(batch.samples) == 12
    assert batch.samples[0].advantages_T[-1] == pytest.approx(0.3 - 0.5)


def test_a_group_survives_the_failure_of_some():
    table = Table(shaky=set(range(10)))
    batch = table.orchestrator().collect(0)
    failed = [record for record in table.records[0] if record.rollout.failure]
    assert failed
    assert batch.samples
    assert all(record.advantages == () for record in failed)
    for group in by_prompt(batch.samples):
        assert 2 <= len(group) <= 4
        assert sum(sample.advantages_T[-1] for sample in group) == pytest.approx(0.0)  # against the survivors' mean


def test_a_step_without_any_reward_stops_the_run_and_says_why():
    table = Table(broken=set(range(10)))
    with pytest.raises(UserError, match=r"all 36 rollouts.*36 x environment_error.*ValueError: broken.*--resume"):
        table.orchestrator().collect(0)
    assert len(table.records[0]) == 36  # they can be looked at all the same


def test_a_continued_orchestrator_draws_what_an_uninterrupted_one_draws():
    def batches(orchestrator, steps):
        return [(batch.samples, batch.orchestrator_state) for batch in map(orchestrator.collect, steps)]

    table = Table(dull={1, 2, 3}, shaky={4, 5})
    expected = batches(table.orchestrator(), range(6))
    continued = table.orchestrator()
    continued.restore(expected[2][1])
    assert batches(continued, range(3, 6)) == expected[3:]


def test_another_seed_draws_other_tasks_and_other_tokens():
    first, second = (Table().orchestrator(seed=seed).collect(0).samples for seed in (0, 1))
    assert [sample.token_ids_T[:-2] for sample in first] != [sample.token_ids_T[:-2] for sample in second]
    assert [sample.token_ids_T[-2] for sample in first] != [sample.token_ids_T[-2] for sample in second]


@pytest.mark.parametrize("has_critic", [False, True])
def test_records_say_whether_their_group_was_trained_on(has_critic):
    table = Table(dull=set(range(0, 30, 2)))
    orchestrator = table.orchestrator(batch_size=24)
    if has_critic:
        orchestrator.loss = LossConfig(type="ppo", advantage="gae").resolve()
    batch = orchestrator.collect(0)
    trained = {sample.row for sample in batch.samples}
    records = table.records[0]
    assert trained == {row for row, record in enumerate(records) if record.has_signal}
    flat = {row for row, record in enumerate(records) if not any(record.advantages)}
    assert flat and flat.isdisjoint(trained) != has_critic
    table = Table(dull={0, 1, 2}, shaky=set(range(30)), broken={5})
    table.orchestrator(batch_size=24).collect(0)
    failed = [record for record in table.records[0] if record.rollout.failure]
    graded = {record.draw: record.has_signal for record in table.records[0] if not record.rollout.failure}
    assert failed and all(record.has_signal == graded.get(record.draw, False) for record in failed)


def test_several_environments_have_a_mean_reward_each():
    def tasksets(*dull: bool):
        return [OneTask(lambda task, d=d: Digits(task, set(range(10)) if d else set(), set(), set())) for d in dull]

    kept: Records = {}
    names = ("dull", "digits")
    orchestrator = make_orchestrator(tasksets(True, False), kept, names=names, batch_size=8, resample_factor=1)
    metrics = orchestrator.collect(0).metrics
    assert [(record.environment, record.draw) for record in kept[0]] == [("dull", 0)] * 4 + [("digits", 1)] * 4
    assert metrics["reward/mean/dull"] == pytest.approx(0.3)
    assert metrics["reward/mean"] == pytest.approx((metrics["reward/mean/dull"] + metrics["reward/mean/digits"]) / 2)
    assert lookup("reward/mean/digits").better == "higher"
    assert not any(name.startswith("reward/mean/") for name in Table().orchestrator().collect(0).metrics)
