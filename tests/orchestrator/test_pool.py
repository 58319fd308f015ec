"""Batches above level 0: groups in flight across steps, with a policy whose replies take random times."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest

from slimrl.config.rollout import LimitsConfig
from slimrl.errors import UserError
from slimrl.inference.client import Completion
from slimrl.monitor.metrics import lookup
from slimrl.transport.base import Batch
from slimrl.types import SamplingParams
from tests.orchestrator.made import Records, make_orchestrator
from tests.orchestrator.test_orchestrator import Digits, dropped
from tests.rollout.scripted import LOGPROB, TOKENIZER, OneTask, make_context

G, WANTED = 4, 2


@dataclass
class SlowClient:
    """Says a digit that the request's seed decides, after a random time. Some requests take `straggle_s` longer, and
    the first `num_stuck` wait for version 2, so that others overtake them."""

    rng: random.Random
    straggle_s: float = 0.0
    num_stuck: int = 0
    version: int = 0
    asked: Counter = field(default_factory=Counter)

    async def sample(self, prompt: list[int], params: SamplingParams) -> Completion:
        self.asked[params.seed] += 1
        began, is_stuck = self.version, self.asked.total() <= self.num_stuck
        for _ in range(self.rng.randrange(4)):
            await asyncio.sleep(0)
        if self.rng.random() < 0.1:
            await asyncio.sleep(self.straggle_s)
        while is_stuck and self.version < 2:
            await asyncio.sleep(0.001)
        token_ids = (*TOKENIZER.encode(str(params.seed % 10), add_special_tokens=False), TOKENIZER.eos_token_id)
        versions = (began,) * (len(token_ids) - 1) + (self.version,)
        return Completion(token_ids, (LOGPROB,) * len(token_ids), versions, "stop")


@dataclass
class Run:
    """A run at a level above 0, and what it has recorded: batches, and the tasks of their rollouts by step."""

    level: int
    seed: int = 0
    straggle_s: float = 0.0
    num_stuck: int = 0
    kinds: tuple[set[int], set[int], set[int]] = (set(), set(), set())
    group_size: int = G
    num_environments: int = 1
    batches: list[Batch] = field(default_factory=list)
    records: Records = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.client = SlowClient(self.rng, self.straggle_s, self.num_stuck)
        self.orchestrator = make_orchestrator(
            [OneTask(lambda task: Digits(task, *self.kinds), num_tasks=1000) for _ in range(self.num_environments)],
            self.records,
            replace(make_context(self.client), num_concurrent=64),
            seed=self.seed,
            level=self.level,
            names=[str(number) for number in range(self.num_environments)],
            batch_size=self.group_size * WANTED,
            rollouts_per_example=self.group_size,
        )

    def play(self, steps: range, behind: int = 0) -> list[Batch]:
        """The batches of the steps, each collected with a sampler that is up to `behind` versions behind."""
        for step in steps:
            self.client.version = max(self.client.version, step - self.rng.randint(0, behind))
            self.batches.append(self.orchestrator.collect(step))
        return self.batches

    def used(self, steps: range) -> Counter:
        """How often each task was trained on or dropped after it was played, by its id."""
        return Counter(record.rollout.task_id for step in steps for record in self.records[step])


@contextmanager
def playing(**settings) -> Iterator[Run]:
    run = Run(**settings)
    try:
        yield run
    finally:
        run.orchestrator.close()


def open_rollouts(batch: Batch) -> float:
    return batch.metrics["async/waiting"] + batch.metrics["async/in_flight"]


def check_accounts(batches: list[Batch]) -> None:
    """Started so far = trained + dropped + waiting + in flight, after each step."""
    left = 0.0
    for batch in batches:
        assert batch.metrics["rollout/num"] == batch.metrics["rollout/num_trained"] + dropped(batch.metrics)
        left += batch.metrics["rollout/started"] - batch.metrics["rollout/num"]
        assert left == open_rollouts(batch)


def random_kinds(seed: int) -> tuple[set[int], set[int], set[int]]:
    rng = random.Random(f"kinds/{seed}")
    return tuple(set(rng.sample(range(10), rng.randrange(3))) for _ in range(3))


@pytest.mark.parametrize("seed", range(6))
def test_no_token_is_older_than_the_level_and_the_accounts_close(seed: int):
    level = 1 + seed % 3
    with playing(level=level, seed=seed, straggle_s=0.005, kinds=random_kinds(seed)) as run:
        batches = run.play(range(10), behind=seed % 2 * level)
    check_accounts(batches)
    for step, batch in enumerate(batches):
        assert all(step - level <= sample.version for sample in batch.samples)
        assert open_rollouts(batch) <= G * WANTED * level
        shares = {name: value for name, value in batch.metrics.items() if name.startswith("async/age_")}
        assert shares.pop("async/age_max", 0) <= level and 0 <= shares.pop("async/age_mean", 0) <= level
        assert not batch.samples or sum(shares.values()) == pytest.approx(1.0)
        for name in batch.metrics:
            lookup(name)
    assert set(run.used(range(10)).values()) == {G}  # a task is used once, with all of its rollouts


def test_what_is_too_old_is_dropped_and_begun_again_with_the_same_seeds():
    with playing(level=1, num_stuck=G) as run:
        batches = run.play(range(3))
    assert batches[2].metrics["drop/stale"] >= G  # the first group, and what else a busy machine has left behind
    assert [run.client.asked[seed] for seed in list(run.client.asked)[:G]] == [2] * G  # the same seeds once more
    check_accounts(batches)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))])
def test_a_run_goes_on_from_any_batch(seed: int):
    settings = {"level": 1 + seed % 2, "seed": seed, "straggle_s": 0.005, "kinds": random_kinds(seed)}
    with playing(**settings) as first:
        states = [json.loads(json.dumps(batch.orchestrator_state)) for batch in first.play(range(6))]
    for done in (1, 3, 6):
        with playing(**settings) as second:
            second.orchestrator.restore(states[done - 1])
            assert second.orchestrator.state == states[done - 1]
            second.batches += first.batches[:done]
            second.client.version = done
            second.play(range(done, done + 5))
            ends = second.orchestrator.state
        check_accounts(second.batches)
        used = first.used(range(done)) + second.used(range(done, done + 5))
        assert set(used.values()) == {G}  # nothing is trained on twice
        left = len(ends["waiting"]) + len(ends["in_flight"])
        assert len(used) + left == ends["data_position"]  # and nothing is lost


def as_before(rollout):
    """A saved rollout as earlier versions wrote it."""
    names = {name: f"{name}_T" for name in ("token_ids", "loss_mask", "logprobs", "versions")}
    old = {names.get(name, name): value for name, value in rollout.items()}
    reward = "NaN" if rollout["reward"] is None else rollout["reward"]
    return old | {"loss_mask_T": list(map(bool, rollout["loss_mask"])), "reward": reward, "task_data": {"number": -1}}


@pytest.mark.parametrize("saved", [dict, as_before])
def test_groups_that_wait_are_kept_to_the_last_bit(saved):
    with playing(level=2, kinds=(set(), set(), {0, 5})) as run:
        run.play(range(1))
        state = {}
        while len(state.get("waiting", ())) < WANTED:  # the rest of what was issued
            run.orchestrator._pool._file_arrived()
            state = run.orchestrator.state
        waiting = run.orchestrator._pool.waiting
    for group in state["waiting"]:
        group["rollouts"] = list(map(saved, group["rollouts"]))
    with playing(level=2) as again:
        again.orchestrator.restore(json.loads(json.dumps(state, allow_nan=False)))
        assert repr(again.orchestrator._pool.waiting) == repr(waiting)  # nan is not equal to itself


@pytest.mark.parametrize("changed", [{"group_size": 2 * G}, {"num_environments": 2}])
def test_groups_of_other_settings_are_played_again(changed):
    with playing(level=2) as first:
        first.play(range(1))
        while not first.orchestrator._pool.waiting:
            first.orchestrator._pool._file_arrived()
        state = first.orchestrator.state
    with playing(level=2, **changed) as second:
        second.orchestrator.restore(json.loads(json.dumps(state)))
        assert not second.orchestrator._pool.waiting
        assert second.orchestrator.state["in_flight"] == [
            *(group["position"] for group in state["waiting"]),
            *state["in_flight"],
        ]
        second.play(range(1, 4))
        ends = second.orchestrator.state
        used = second.used(range(1, 4))
    assert set(used.values()) <= {second.group_size, 2 * second.group_size}  # two environments have equal ids
    played = sum(used.values()) / second.group_size
    assert played + len(ends["waiting"]) + len(ends["in_flight"]) == ends["data_position"] - WANTED


def test_an_error_in_the_thread_ends_the_step():
    class Broken(SlowClient):
        async def sample(self, prompt, params):
            raise UserError("the sampler is away")

    with playing(level=1) as run:
        run.orchestrator._watched._client = Broken(run.rng)
        with pytest.raises(UserError, match="the sampler is away"):
            run.play(range(1))


@pytest.mark.slow
def test_an_environment_that_holds_the_thread_ends_the_run_with_its_place(monkeypatch: pytest.MonkeyPatch):
    slept = []

    class Blocks(Digits):
        async def step(self, reply):
            if not slept:
                slept.append(True)
                time.sleep(1.5)
            return await super().step(reply)

    for module in ("rollout.loop", "orchestrator.pool"):
        monkeypatch.setattr(f"slimrl.{module}.CHECK_S", 0.05)
        monkeypatch.setattr(f"slimrl.{module}.HELD_S", 0.3)
    with playing(level=1) as run:
        run.orchestrator.tasksets[0].make = lambda task: Blocks(task, *run.kinds)
        limits = LimitsConfig(max_turns=4, episode_timeout_s=0.05)
        run.orchestrator._pool._context = replace(run.orchestrator._pool._context, limits=limits, seq_len=64)
        with pytest.raises(UserError, match=r"held the run for 0 s \(test_pool\.py:\d+, in step\).*worker = .process"):
            run.play(range(1))


def test_a_level_that_was_lowered_begins_again_what_is_too_old():
    with playing(level=2) as first:
        state = first.play(range(3))[-1].orchestrator_state
    with playing(level=0) as second:
        second.orchestrator.restore(state)
        second.client.version = 3
        batches = second.play(range(3, 6))
        left = second.orchestrator.state
    assert all(batch.metrics["async/age_max"] == 0 for batch in batches)
    used = first.used(range(3)) + second.used(range(3, 6))
    assert set(used.values()) == {G}
    assert len(used) + len(left["waiting"]) + len(left["in_flight"]) == left["data_position"]


@pytest.mark.parametrize("level", [0, 2])
def test_tasksets_are_called_at_the_beginning_of_each_step(level: int):
    class Counting(OneTask):
        num = 0

        def begin_step(self, seed):
            self.num += 1

    with playing(level=level) as run:
        counting = Counting(run.orchestrator.tasksets[0].make, num_tasks=1000)
        run.orchestrator.tasksets[:] = [counting]
        run.play(range(3))
    assert counting.num == 3
