"""Simulates an RL run: replicas, orchestrator and trainer as coroutines on a virtual clock.

These parts wait for one another as in a real run (`orchestrator/`, `launch/sampling.py`, slimrl-cluster's
orchestrator). The duration of each piece of work is an input, so nothing is measured. A seed determines all random
draws.

The pool of a real run (`orchestrator/pool.py`) would be too slow for a search with a million turns: its threads wait in
real time, and it renders and tokenizes each turn.
"""

import asyncio
import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from slimrl_tools.plan.replica import Costs, Recipe, Replica, VirtualLoop, now
from slimrl_tools.plan.workload import NO_WORK, Row

LULL_S = 0.05  # an engine beside a trainer is paused after this time without a request (`inference/local_client.py`)
WARM_STEPS = 3  # steps beyond the level until the pool is full and batches reach their final age
EVENTS = "started", "trained", "dropped_stale", "dropped_useless"


class Turn(NamedTuple):
    """A turn of an episode. The policy reads `read` new tokens and samples `sampled` tokens. Then the environment
    answers after `env_s` seconds.

    The first turn of an episode samples nothing; its `env_s` is the time to start the environment. The second turn
    reads the prompt, which is the same in all episodes of a group.
    """

    read: int
    sampled: int
    env_s: float


Episode = tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class EpisodeGroup:
    """The episodes of one task. `row` is the trainer's work on these episodes; `has_signal` is True if the trainer uses
    them."""

    episodes: tuple[Episode, ...]
    row: Row
    has_signal: bool


def draw_group(groups: Sequence[EpisodeGroup], number: int, size: int, seed: int) -> EpisodeGroup:
    """Draw a recorded group as group `number` of a simulated run. The same `seed` gives the same draw. If the recorded
    group has another size, draw `size` of its episodes with replacement.

    Whole episodes are drawn, so a long reply stays together with the slow tool that it calls, and long episodes are as
    rare as in the recorded run.
    """
    rng = random.Random(f"{seed}/{number}")
    group = groups[rng.randrange(len(groups))]
    if len(group.episodes) == size:
        return group
    episodes = tuple(rng.choices(group.episodes, k=size))
    return EpisodeGroup(episodes, group.row.times(size / len(group.episodes)), group.has_signal)


@dataclass(frozen=True, slots=True)
class Placement:
    """The division of devices among the parts of a run. With `one-process`, sampling and training take turns on one
    device. With `processes`, each replica of the sampler and each rank of the trainer has its own device.

    `level` is `max_async_level`, and `slots` the number of sequences that a replica decodes at once.
    """

    kind: Literal["one-process", "processes"]
    level: int = 0
    num_samplers: int = 1
    num_trainers: int = 1
    slots: int = 64

    @property
    def num_devices(self) -> int:
        """Return the number of devices that the placement needs."""
        return 1 if self.kind == "one-process" else self.num_samplers + self.num_trainers


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a simulated run. Idle shares are fractions of the devices' time, and `dropped` is the share of
    rollouts that became too old. `account` has numbers of rollouts, where started = trained + dropped + waiting + in
    flight."""

    placement: Placement
    step_s: float
    train_s: float
    tokens_per_s: float
    age_mean: float
    age_p95: float
    age_max: int
    dropped: float
    sampler_idle: float
    trainer_idle: float
    account: dict[str, int]

    @property
    def steps_per_hour(self) -> float:
        """Return the number of training steps in an hour."""
        return 3600 / self.step_s

    @property
    def device_hours(self) -> float:
        """Return the device-hours of a training step."""
        return self.placement.num_devices * self.step_s / 3600


def simulate(
    placement: Placement, recipe: Recipe, costs: Costs, groups: Sequence[EpisodeGroup], steps: int = 20, seed: int = 0
) -> Outcome:
    """Simulate `steps` training steps with groups drawn from `groups`, after a warm-up that fills the pool."""

    async def play() -> Outcome:
        run = _Run(placement, recipe, costs, groups, seed)
        warm = placement.level + WARM_STEPS
        await (run.take_turns if placement.kind == "one-process" else run.overlap)(warm + steps)
        return run.outcome(warm)

    # Closing the runner cancels the tasks that the run leaves behind.
    with asyncio.Runner(debug=False, loop_factory=VirtualLoop) as runner:
        return runner.run(play())


@dataclass(slots=True, eq=False)
class _Group:
    """A group that is in flight or finished. `version` is the version of the policy at the start of the group."""

    version: int
    played: EpisodeGroup
    playing: "asyncio.Task[None]" = field(init=False)
    readers: set[Replica] = field(default_factory=set)  # replicas that have read its prompt


@dataclass(frozen=True, slots=True)
class _Batch:
    """A batch: the trainer's work, the ages of its groups, and the tokens that were sampled for it."""

    row: Row
    ages: tuple[int, ...]
    sampled: int


class _Run:
    """The state of one simulated run. `version` is the version of the samplers' weights, and `published` the trainer's
    newest version."""

    def __init__(
        self, placement: Placement, recipe: Recipe, costs: Costs, groups: Sequence[EpisodeGroup], seed: int
    ) -> None:
        self.placement, self.recipe, self.costs, self.groups, self.seed = placement, recipe, costs, groups, seed
        self.replicas = [Replica(costs, placement.slots) for _ in range(placement.num_samplers)]
        slots = placement.slots * placement.num_samplers
        # The number of episodes at once is the same as in `launch/parts.py`.
        self.places = asyncio.Semaphore(max(slots, recipe.batch_size * (placement.level + 1) * bool(placement.level)))
        self.in_flight: list[_Group] = []
        self.finished: list[_Group] = []
        self._changed = asyncio.Event()  # wakes coroutines that wait for groups, weights or a batch
        self.version = self.published = 0
        self.batches: dict[int, _Batch] = {}
        # For each step: the time of its end, the seconds of training, the replicas' computing time so far, and its
        # batch.
        self.records: list[tuple[float, float, float, _Batch]] = []
        self.counts: Counter[str] = Counter(dict.fromkeys(EVENTS, 0))  # numbers of groups by event

    def _announce(self) -> None:
        self._changed.set()
        self._changed.clear()

    async def take_turns(self, steps: int) -> None:
        """Simulate one process, which alternates between sampling a batch and training on it. Above level 0, episodes
        stay open during training, and wait for the engine. Before a training step, the engine also samples the groups
        that were started as replacements."""
        (engine,) = self.replicas
        for step in range(steps):
            before = engine.tokens
            batch = await self._collect(step)
            while self.placement.level and engine.tokens - before < 2 * batch.sampled:
                was_open = engine.num_open
                await asyncio.sleep(LULL_S)
                if not was_open and not engine.num_open:
                    break
            engine.hold(self.costs.train_s(batch.row, self.recipe, 1), computes=False)
            await self._train_on(batch)
            self.version = step + 1
            engine.hold(self.costs.sampling * self.costs.speeds.copy)

    async def overlap(self, steps: int) -> None:
        """Simulate several processes: samplers, orchestrator and trainer work at the same time."""
        async with asyncio.TaskGroup() as group:
            others = [group.create_task(self._orchestrate(steps)), group.create_task(self._transfer())]
            for step in range(steps):
                while step not in self.batches:
                    await self._changed.wait()
                await asyncio.sleep(self.costs.batch_s)
                await self._train_on(self.batches.pop(step))
                self.published = step + 1
                self._announce()
            for one in others:
                one.cancel()

    async def _orchestrate(self, steps: int) -> None:
        """Make the batch of each step, at most one step ahead of the samplers' weights."""
        for step in range(steps):
            while self.version < step - min(1, self.placement.level):
                await self._changed.wait()
            self.batches[step] = await self._collect(step)
            self._announce()

    async def _transfer(self) -> None:
        """Send each new version of the weights to the replicas."""
        while True:
            while self.published == self.version:
                await self._changed.wait()
            newest, seconds = self.published, self.costs.transfer_s(self.placement.num_samplers)
            for replica in self.replicas:
                replica.hold(seconds)
            await asyncio.sleep(seconds)
            self.version = newest
            self._announce()

    async def _train_on(self, batch: _Batch) -> None:
        seconds = self.costs.train_s(batch.row, self.recipe, self.placement.num_trainers)
        await asyncio.sleep(seconds)
        self.records.append((now(), seconds, sum(replica.busy_s for replica in self.replicas), batch))

    async def _collect(self, step: int) -> _Batch:
        """Play groups until the batch of `step` is full, or the limit of resampling is reached
        (`Orchestrator.collect`)."""
        wanted, level = self.recipe.batch_size // self.recipe.group_size, self.placement.level
        self._drop_before(step - level)
        looked: list[_Group] = []
        kept: list[_Group] = []
        while (num := min(wanted - len(kept), wanted * self.recipe.resample_factor - len(looked))) > 0:
            ahead = wanted * (level - max(0, step - self.version))
            self._issue(num + ahead - len(self.in_flight) - len(self.finished))
            # Take at least one group, oldest version first. At level 0 wait until all groups are finished.
            while not self.finished if level else self.in_flight:
                await self._changed.wait()
            self.finished.sort(key=lambda group: group.version)
            taken, self.finished = self.finished[:num], self.finished[num:]
            looked += taken
            kept += [group for group in taken if group.played.has_signal]
        self.counts.update(trained=len(kept), dropped_useless=len(looked) - len(kept))
        return _Batch(
            sum((group.played.row for group in kept), start=NO_WORK),
            tuple(step - group.version for group in kept),
            sum(turn.sampled for group in looked for episode in group.played.episodes for turn in episode),
        )

    def _drop_before(self, version: int) -> None:
        """Drop the groups whose weights are older than `version`, finished or not, and start replacements.

        Each replacement is a new random draw, as a real run would sample other tokens. A copy of a slow group would be
        dropped again and again, and never finish.
        """
        old = [group for group in (*self.finished, *self.in_flight) if group.version < version]
        for group in old:
            group.playing.cancel()
        self.finished = [group for group in self.finished if group.version >= version]
        self.in_flight = [group for group in self.in_flight if group.version >= version]
        self.counts.update(dropped_stale=len(old))
        self._issue(len(old))

    def _issue(self, num: int) -> None:
        for _ in range(num):
            played = draw_group(self.groups, self.counts["started"], self.recipe.group_size, self.seed)
            group = _Group(self.version, played)
            group.playing = asyncio.create_task(self._play(group))
            self.counts.update(started=1)
            self.in_flight.append(group)

    async def _play(self, group: _Group) -> None:
        await asyncio.gather(*(self._play_episode(group, episode) for episode in group.played.episodes))
        self.in_flight.remove(group)
        self.finished.append(group)
        self._announce()

    async def _play_episode(self, group: _Group, episode: Episode) -> None:
        """Play an episode on the replica with the fewest episodes. The episode's keys and values stay on this
        replica."""
        start, *turns = episode
        async with self.places:
            await asyncio.sleep(start.env_s)
            replica = min(self.replicas, key=lambda one: one.num_episodes)
            replica.num_episodes += 1
            try:
                for number, turn in enumerate(turns):
                    read = 0 if number == 0 and replica in group.readers else turn.read
                    group.readers.add(replica)
                    await replica.sample(read, turn.sampled)
                    await asyncio.sleep(turn.env_s)
            finally:
                replica.num_episodes -= 1

    def outcome(self, warm: int) -> Outcome:
        """Return the outcome of the simulation, without its first `warm` steps."""
        (began, _, busy_before, _), *steps = self.records[warm - 1 :]
        ended, _, busy_after, _ = steps[-1]
        seconds, trained_s = ended - began, sum(train_s for _, train_s, *_ in steps)
        ages = sorted(age for *_, batch in steps for age in batch.ages) or [0]
        counts = {**self.counts, "waiting": len(self.finished), "in_flight": len(self.in_flight)}
        return Outcome(
            self.placement,
            step_s=seconds / len(steps),
            train_s=trained_s / len(steps),
            tokens_per_s=sum(batch.row.trained for *_, batch in steps) / seconds,
            age_mean=sum(ages) / len(ages),
            age_p95=ages[math.ceil(0.95 * len(ages)) - 1],
            age_max=ages[-1],
            dropped=counts["dropped_stale"] / counts["started"],
            sampler_idle=1 - (busy_after - busy_before) / len(self.replicas) / seconds,
            trainer_idle=1 - trained_s / seconds,
            account={name: self.recipe.group_size * num for name, num in counts.items()},
        )
