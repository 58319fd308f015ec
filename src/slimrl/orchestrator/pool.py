"""The pool holds the groups of episodes in flight, and the finished groups that no batch has used yet.

At async level 0, groups are played in rounds: `take` starts all groups that were issued (added), and waits until they
finish. Above level 0, each group starts when it is issued, and also runs while the trainer trains. The event loop of
the episodes only plays the groups. All changes of the pool happen in the thread that calls the pool's methods.
"""

import queue
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from slimrl.io.loop_thread import CHECK_S, LoopTasks, gather_all
from slimrl.io.rollout_json import RolloutField
from slimrl.rollout.episode import EpisodeSpec, RolloutContext
from slimrl.rollout.games import Places, run_groups
from slimrl.rollout.loop import EPISODES, HELD_S, HeldWatch, run_episodes
from slimrl.types import Rollout

Games = list[list[EpisodeSpec]]


@dataclass(frozen=True, slots=True)
class PlayedGroup:
    """The rollouts of one task; some may have failed. `position` is the task's position in the curriculum. `version` is
    the policy's version when the group was issued."""

    position: int
    version: int
    rollouts: tuple[RolloutField, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Flight:
    """A group in flight. At level 0 `playing` is None until the next round plays the group."""

    position: int
    version: int
    games: Games
    playing: "Future[list[list[Rollout]]] | None"


class Pool:
    """The groups of one run. `level` is the async level. `most` is the number of episodes in the largest game."""

    def __init__(self, context: RolloutContext, level: int, most: int) -> None:
        self._context = context
        self._tasks = LoopTasks(loop=EPISODES) if level else None
        self._places = Places(context.num_concurrent, most)
        self._in_flight: dict[int, _Flight] = {}
        self._arrived: queue.SimpleQueue[_Flight] = queue.SimpleQueue()
        self._finished: list[PlayedGroup] = []

    @property
    def in_flight(self) -> list[int]:
        """The positions of the groups in flight, in the order in which they were issued."""
        return list(self._in_flight)

    @property
    def waiting(self) -> list[PlayedGroup]:
        """The finished groups that no batch has used, in the order in which they finished."""
        return list(self._finished)

    def issue(self, position: int, games: Games) -> None:
        """Add a group. Above level 0 it starts at once."""
        playing = self._tasks.start(self._play(games)) if self._tasks else None
        flight = _Flight(position, self._context.client.version, games, playing)
        self._in_flight[position] = flight
        if playing:
            playing.add_done_callback(lambda _: self._arrived.put(flight))

    def restore(self, groups: Sequence[PlayedGroup]) -> None:
        """Add groups that finished in an earlier process."""
        self._finished.extend(groups)

    def drop_before(self, version: int) -> list[int]:
        """Drop all groups, finished or not, that were issued before `version`. Return their positions."""
        self._file_arrived()
        late = [flight for flight in self._in_flight.values() if flight.version < version]
        for flight in late:
            del self._in_flight[flight.position]
            if flight.playing:
                flight.playing.cancel()
        old = [group for group in self._finished if group.version < version]
        self._finished = [group for group in self._finished if group.version >= version]
        return [group.position for group in old] + [flight.position for flight in late]

    def take(self, num: int) -> list[PlayedGroup]:
        """Wait for at least one finished group, and return up to `num` groups. The groups are sorted by version, oldest
        first, because these become too old first. Groups of the same version are in the order in which they
        finished."""
        self._file_arrived()
        while not self._finished:
            self._wait()
        self._finished.sort(key=lambda group: group.version)  # a stable sort
        taken, self._finished = self._finished[:num], self._finished[num:]
        return taken

    def close(self) -> None:
        """Cancel the groups in flight."""
        self._in_flight.clear()
        if self._tasks:
            self._tasks.close()

    async def _play(self, games: Games) -> list[list[Rollout]]:
        return await gather_all(*(self._places.play(game, self._context) for game in games))

    def _wait(self) -> None:
        """Wait until a group has finished; at level 0, until all groups have finished. Raise the error of a failed
        group."""
        assert self._in_flight, "nothing is in flight that could finish"
        if not self._tasks:
            self._play_round()
            return None
        check = HeldWatch(max(HELD_S, 2 * self._context.limits.episode_timeout_s))
        while True:
            try:
                return self._file(self._arrived.get(timeout=CHECK_S))
            except queue.Empty:
                check()

    def _play_round(self) -> None:
        flights = list(self._in_flight.values())
        played = iter(run_episodes(run_groups([game for flight in flights for game in flight.games], self._context)))
        self._in_flight.clear()
        for flight in flights:
            self._finish(flight, [next(played) for _ in flight.games])

    def _file_arrived(self) -> None:
        while not self._arrived.empty():
            self._file(self._arrived.get())

    def _file(self, flight: _Flight) -> None:
        """Record a finished group, unless it was dropped in the meantime."""
        if self._in_flight.get(flight.position) is flight:
            assert flight.playing
            played = flight.playing.result()
            del self._in_flight[flight.position]
            self._finish(flight, played)

    def _finish(self, flight: _Flight, played: list[list[Rollout]]) -> None:
        rollouts = tuple(rollout for game in played for rollout in game)
        self._finished.append(PlayedGroup(flight.position, flight.version, rollouts))
