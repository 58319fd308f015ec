"""The pool of the model: groups in flight on the replicas, and groups that have finished, as `orchestrator/pool.py`."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from slimrl_tools.plan.pipeline.device import Wait
from slimrl_tools.plan.pipeline.episodes import EpisodeGroup, PlayedEpisode
from slimrl_tools.plan.pipeline.placement import Placement, Recipe
from slimrl_tools.plan.pipeline.replica import Replica, SampleRequest


@dataclass(slots=True, eq=False)
class SimulatedGroup:
    """A group that is played, or was. `version` is the policy's when it was issued."""

    position: int
    version: int
    played: EpisodeGroup
    left: int
    playing: list[Any] = field(default_factory=list)
    readers: set[int] = field(default_factory=set)  # the replicas that have read its prompt


class Places:
    """As many places as episodes may be played at once, in the order in which they are asked for. SimPy's own resource
    looks through all that are taken whenever one is given back."""

    def __init__(self, env: Any, num: int) -> None:
        self._env, self._num_free = env, num
        self._waiting: deque[Any] = deque()

    def request(self) -> Any:
        """The event that a place is free, which takes it."""
        event = self._env.event()
        if self._num_free:
            self._num_free -= 1
            event.succeed()
        else:
            self._waiting.append(event)
        return event

    def release(self, event: Any) -> None:
        """Give back a place, or give up waiting for it."""
        if not event.triggered:
            self._waiting.remove(event)
        elif self._waiting:
            self._waiting.popleft().succeed()
        else:
            self._num_free += 1


class SimulatedPool:
    """The groups of a simulated run. Each episode goes to the replica with the fewest requests, and stays there, where
    its keys and values are."""

    def __init__(self, simpy: Any, env: Any, replicas: Sequence[Replica], places: int) -> None:
        self._simpy, self._env, self._replicas = simpy, env, replicas
        self._places = Places(env, places)
        self._num_on = [0] * len(replicas)  # episodes
        self.in_flight: dict[int, SimulatedGroup] = {}
        self.finished: list[SimulatedGroup] = []
        self._arrival = env.event()

    @property
    def num_open(self) -> int:
        """The requests that are open."""
        return sum(replica.num_open for replica in self._replicas)

    def issue(self, group: SimulatedGroup) -> None:
        """Begin a group."""
        self.in_flight[group.position] = group
        group.playing = [self._env.process(self._play(group, episode)) for episode in group.played.episodes]

    def drop_before(self, version: int) -> list[SimulatedGroup]:
        """Drop the groups that were issued before a version, finished or not, and return them."""
        late = [group for group in self.in_flight.values() if group.version < version]
        for group in late:
            del self.in_flight[group.position]
            for process in group.playing:
                if process.is_alive:
                    process.interrupt()
        old = [group for group in self.finished if group.version < version]
        self.finished = [group for group in self.finished if group.version >= version]
        return old + late

    def take(self, num: int, waits_for_all: bool) -> Any:
        """At most `num` finished groups, those of the oldest version first: once one has finished, or all have."""
        while self.in_flight if waits_for_all else not self.finished:
            yield self._arrival
        self.finished.sort(key=lambda group: group.version)
        taken, self.finished = self.finished[:num], self.finished[num:]
        return taken

    def _play(self, group: SimulatedGroup, episode: PlayedEpisode) -> Wait:
        """Play an episode; an interruption ends it."""
        place = self._places.request()
        request: SampleRequest | None = None
        number = -1
        try:
            yield place
            if episode.start_s:
                yield self._env.timeout(episode.start_s)
            number = min(range(len(self._replicas)), key=self._num_on.__getitem__)
            self._num_on[number] += 1
            replica = self._replicas[number]
            for index, turn in enumerate(episode.turns):
                read = turn.read if index or number not in group.readers else 0
                group.readers.add(number)
                request = replica.submit(read, turn.sampled)
                yield request.done
                if turn.env_s:
                    yield self._env.timeout(turn.env_s)
        except self._simpy.Interrupt:
            if request:
                self._replicas[number].cancel(request)
            return
        finally:
            self._places.release(place)
            if number >= 0:
                self._num_on[number] -= 1
        group.left -= 1
        if not group.left:
            self._finish(group)

    def _finish(self, group: SimulatedGroup) -> None:
        del self.in_flight[group.position]
        self.finished.append(group)
        arrival, self._arrival = self._arrival, self._env.event()
        arrival.succeed()


def num_places(placement: Placement, recipe: Recipe) -> int:
    """The episodes that are played at once (`launch/parts.py`)."""
    slots = placement.slots * placement.num_samplers
    return max(slots, recipe.batch_size * (placement.level + 1)) if placement.level else slots
