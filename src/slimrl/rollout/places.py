"""Limits the number of episodes that run at once. The episodes of one game start together.

In self-play the episodes of a game wait for each other (`rollout/self_play.py`). Any other episode is a game of its
own.
"""

import asyncio
from collections.abc import Sequence

from slimrl.io.loop_thread import gather_all
from slimrl.rollout.episode import EpisodeSpec, RolloutContext, run_episode
from slimrl.types import Rollout


class Places:
    """Limits the episodes in one event loop to `num` at once, or to `largest` (one whole game) if that is more."""

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
