"""Simulates an RL run: replicas, orchestrator and trainer as coroutines on a virtual clock.

These parts wait for one another as in a real run (`orchestrator/`, `launch/sampling.py`, slimrl-cluster's
orchestrator). The duration of each piece of work is an input. Nothing is measured here, and a seed determines all
draws.

The real pool is not used: its threads wait in real time, and it renders and tokenizes each turn. This would be too slow
for a search, which simulates a million turns.
"""

import asyncio
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from slimrl_tools.plan.episodes import Episode, EpisodeGroup, RecordedEpisodes
from slimrl_tools.plan.replica import Costs, Recipe, Replica, VirtualLoop, now
from slimrl_tools.plan.workload import Row

LULL_S = 0.05  # an engine beside a trainer is paused after this time without a request (`inference/local_client.py`)
WARM_STEPS = 3  # steps beyond the level until the pool is full and batches reach their final age


@dataclass(frozen=True, slots=True)
class Placement:
    """The devices of the parts. With `one-process`, sampling and training take turns on one device. With `processes`,
    each replica of the sampler and each rank of the trainer has its own device.

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
    rollouts that became too old. `account` has numbers of rollouts: started = trained + dropped + waiting + in
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
    placement: Placement, recipe: Recipe, costs: Costs, episodes: RecordedEpisodes, steps: int = 20, seed: int = 0
) -> Outcome:
    """Simulate `steps` training steps, after a warm-up that fills the pool."""

    async def play() -> Outcome:
        run = _Run(placement, recipe, costs, episodes, seed)
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
        self, placement: Placement, recipe: Recipe, costs: Costs, episodes: RecordedEpisodes, seed: int
    ) -> None:
        self.placement, self.recipe, self.costs = placement, recipe, costs
        self.episodes, self.seed = episodes, seed
        self.replicas = [Replica(costs, placement.slots) for _ in range(placement.num_samplers)]
        slots = placement.slots * placement.num_samplers
        # The same number of episodes at once as in `launch/parts.py`.
        self.places = asyncio.Semaphore(max(slots, recipe.batch_size * (placement.level + 1) * bool(placement.level)))
        self.in_flight: list[_Group] = []
        self.finished: list[_Group] = []
        self._changed = asyncio.Event()  # wakes coroutines that wait for groups, weights or a batch
        self.version = self.published = 0
        self.batches: dict[int, _Batch] = {}
        # For each step: the time of its end, the seconds of training, the replicas' computing time so far, and its
        # batch.
        self.records: list[tuple[float, float, float, _Batch]] = []
        self.counts: Counter[str] = Counter()  # numbers of groups by event

    def _announce(self) -> None:
        self._changed.set()
        self._changed.clear()

    async def take_turns(self, steps: int) -> None:
        """Simulate one process, which samples a batch and then trains on it. Above level 0, episodes stay open during
        training, and wait for the engine. Before a training step, the engine also samples the groups that were started
        as replacements."""
        (engine,) = self.replicas
        for step in range(steps):
            before = engine.tokens
            batch = await self._collect(step)
            while self.placement.level and engine.tokens - before < 2 * batch.sampled:
                was_open = engine.num_open
                await asyncio.sleep(LULL_S)
                if not was_open and not engine.num_open:
                    break
            began, train_s = now(), self.costs.train_s(batch.row, self.recipe, 1)
            engine.hold(train_s, computes=False)
            await asyncio.sleep(train_s)
            self.version = step + 1
            engine.hold(self.costs.sampling * self.costs.speeds.copy)
            self._record(began, batch)

    async def overlap(self, steps: int) -> None:
        """Simulate several processes: samplers, orchestrator and trainer work at the same time."""
        async with asyncio.TaskGroup() as group:
            others = [group.create_task(self._orchestrate(steps)), group.create_task(self._transfer())]
            await self._train(steps)
            for one in others:
                one.cancel()

    async def _orchestrate(self, steps: int) -> None:
        """Make the batch of each step, at most one step ahead of the samplers' weights."""
        for step in range(steps):
            while self.version < step - min(1, self.placement.level):
                await self._changed.wait()
            self.batches[step] = await self._collect(step)
            self._announce()

    async def _train(self, steps: int) -> None:
        for step in range(steps):
            while step not in self.batches:
                await self._changed.wait()
            batch = self.batches.pop(step)
            await asyncio.sleep(self.costs.batch_s)
            began = now()
            await asyncio.sleep(self.costs.train_s(batch.row, self.recipe, self.placement.num_trainers))
            self.published = step + 1
            self._record(began, batch)
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

    async def _collect(self, step: int) -> _Batch:
        """Play groups until the batch of `step` is full, or the limit of resampling is reached
        (`Orchestrator.collect`)."""
        wanted = self.recipe.num_groups
        self._drop_before(step - self.placement.level)
        looked: list[_Group] = []
        kept: list[_Group] = []
        while (num := min(wanted - len(kept), wanted * self.recipe.resample_factor - len(looked))) > 0:
            ahead = wanted * (self.placement.level - max(0, step - self.version))
            for _ in range(num + ahead - len(self.in_flight) - len(self.finished)):
                self._issue()
            # Take at least one group, oldest version first. At level 0 wait until all groups are finished.
            while not self.finished if self.placement.level else self.in_flight:
                await self._changed.wait()
            self.finished.sort(key=lambda group: group.version)
            taken, self.finished = self.finished[:num], self.finished[num:]
            looked += taken
            kept += [group for group in taken if group.played.has_signal]
        self.counts.update(trained=len(kept), dropped_useless=len(looked) - len(kept))
        return _Batch(
            sum((group.played.row for group in kept), start=Row(0, 0, 0)),
            tuple(step - group.version for group in kept),
            sum(turn.sampled for group in looked for episode in group.played.episodes for turn in episode),
        )

    def _drop_before(self, version: int) -> None:
        """Drop the groups whose weights are older than `version`, finished or not, and start replacements.

        Each replacement is a new draw, since its tools answer anew and other weights sample its tokens. A copy of the
        dropped group would be late again, and would never finish.
        """
        old = [group for group in (*self.finished, *self.in_flight) if group.version < version]
        self.finished = [group for group in self.finished if group.version >= version]
        self.in_flight = [group for group in self.in_flight if group.version >= version]
        self.counts.update(dropped_stale=len(old))
        for group in old:
            group.playing.cancel()
            self._issue()

    def _issue(self) -> None:
        group = _Group(self.version, self.episodes.draw(self.counts["started"], self.recipe.group_size, self.seed))
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

    def _record(self, began: float, batch: _Batch) -> None:
        busy_s = sum(replica.busy_s for replica in self.replicas)
        self.records.append((now(), now() - began, busy_s, batch))

    def outcome(self, warm: int) -> Outcome:
        """Return the outcome of the simulation, without its first `warm` steps."""
        (began, _, busy_before, _), *steps = self.records[warm - 1 :]
        ended, _, busy_after, _ = steps[-1]
        seconds, batches = ended - began, [batch for *_, batch in steps]
        ages = sorted(age for batch in batches for age in batch.ages) or [0]
        trained_s = sum(train_s for _, train_s, *_ in steps)
        counts = {name: self.counts[name] for name in ("started", "trained", "dropped_stale", "dropped_useless")}
        counts |= {"waiting": len(self.finished), "in_flight": len(self.in_flight)}
        return Outcome(
            self.placement,
            step_s=seconds / len(steps),
            train_s=trained_s / len(steps),
            tokens_per_s=sum(batch.row.trained for batch in batches) / seconds,
            age_mean=sum(ages) / len(ages),
            age_p95=ages[math.ceil(0.95 * len(ages)) - 1],
            age_max=ages[-1],
            dropped=counts["dropped_stale"] / counts["started"],
            sampler_idle=1 - (busy_after - busy_before) / len(self.replicas) / seconds,
            trainer_idle=1 - trained_s / seconds,
            account={name: self.recipe.group_size * num for name, num in counts.items()},
        )
