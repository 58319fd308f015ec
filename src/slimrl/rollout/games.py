"""Plays games. The episodes of one game start together, and the number of episodes that run at once is limited.

In self-play the policy plays all roles of a game, with one episode per role. The episodes share a state and wait for
each other inside their `start` and `step`, so the ordinary agent loop can play each of them. If an episode stops before
its game is over, the episodes that wait for it fail as `drop/partner_left`. An episode without self-play counts as a
game with one episode.
"""

import asyncio
import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from slimrl.errors import RolloutError
from slimrl.io.loop_thread import gather_all
from slimrl.rollout.episode import EpisodeSpec, RolloutContext, run_episode
from slimrl.types import Environment, Rollout, Split, Task, Taskset

# Turn n adds n to an episode's seed. The stride is so large that two roles never sample with the same seed.
SEED_STRIDE = 1 << 16


def self_play_specs(spec: EpisodeSpec) -> list[EpisodeSpec]:
    """Return the episodes of one game, one per role. Without roles, return only `spec`."""
    taskset, roles = spec.taskset, spec.taskset.roles
    if not roles:
        return [spec]
    sampling, game = spec.sampling, _Game(taskset, len(roles))
    return [
        EpisodeSpec(
            _RoleTaskset(taskset, game, place),
            spec.task,
            replace(sampling, seed=sampling.seed + place * SEED_STRIDE),
            role,
        )
        for place, role in enumerate(roles)
    ]


@dataclass
class _Game:
    """The environments of one game. They are created when the game's first episode starts. So if their creation fails,
    only this episode fails and not the run."""

    taskset: Taskset
    num_roles: int
    episodes: list[Environment] = field(default_factory=list)

    def episode(self, task: Task, place: int) -> Environment:
        if not self.episodes:
            episodes = list(self.taskset.self_play(copy.deepcopy(task)))
            if len(episodes) != self.num_roles:
                raise RolloutError(
                    "environment_error", f"self_play() gave {len(episodes)} episodes for {self.num_roles} roles"
                )
            self.episodes = episodes
        return self.episodes[place]


@dataclass(frozen=True, slots=True)
class _RoleTaskset(Taskset):
    taskset: Taskset
    game: _Game
    place: int

    def tasks(self, split: Split) -> Sequence[Task]:
        return self.taskset.tasks(split)

    def environment(self, task: Task) -> Environment:
        return self.game.episode(task, self.place)


class Places:
    """A limit on the number of episodes that run at once in one event loop. The limit is `num`, but at least `largest`,
    the number of episodes in the largest game."""

    def __init__(self, num: int, largest: int) -> None:
        self._free = asyncio.Semaphore(max(num, largest, 1))
        # Only one game takes its places at a time. Otherwise two games could each hold some places and wait for ever.
        self._taking = asyncio.Lock()

    async def play(self, game: Sequence[EpisodeSpec], context: RolloutContext) -> list[Rollout]:
        """Start a game's episodes together and return their rollouts."""
        held = 0

        async def play(spec: EpisodeSpec) -> Rollout:
            nonlocal held
            try:
                return await run_episode(spec, context)
            finally:
                held -= 1
                self._free.release()

        try:
            async with self._taking:
                for _ in game:
                    await self._free.acquire()
                    held += 1
            return await gather_all(*map(play, game))
        except BaseException:
            # Episodes that were cancelled before they started have not freed their places.
            for _ in range(held):
                self._free.release()
            raise


async def run_groups(groups: Sequence[Sequence[EpisodeSpec]], context: RolloutContext) -> list[list[Rollout]]:
    """Play all games and return their rollouts in the same order."""
    places = Places(context.num_concurrent, max(map(len, groups), default=1))
    return await gather_all(*(places.play(game, context) for game in groups))
