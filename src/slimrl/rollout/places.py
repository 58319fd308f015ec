"""Many episodes at once: at most as many as there are places, of which the episodes of a game take theirs together.

In self-play the episodes of a game wait for one another (`rollout/self_play.py`). An ordinary episode is a game of one.
"""

import asyncio
from collections.abc import Sequence

from slimrl.rollout.episode import EpisodeSpec, RolloutContext, run_episode
from slimrl.types import Rollout


class Places:
    """The places of one event loop: `num`, or as many as the largest game has episodes."""

    def __init__(self, num: int, largest: int) -> None:
        self._free = asyncio.Semaphore(max(num, largest, 1))
        # One game takes its places at a time. Two at once could each hold some and wait for the other's last for ever.
        self._taking = asyncio.Lock()

    async def play(self, game: Sequence[EpisodeSpec], context: RolloutContext) -> list[Rollout]:
        """The rollouts of a game's episodes, which start together."""
        held = 0
        playing: list[asyncio.Task[Rollout]] = []

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
            playing = [asyncio.create_task(play(spec)) for spec in game]
            return list(await asyncio.gather(*playing))
        except asyncio.CancelledError:
            await asyncio.gather(*playing, return_exceptions=True)  # some may still tidy up, and give theirs back then
            # Episodes that were cancelled before they began have not given their places back.
            for _ in range(held):
                self._free.release()
            raise


async def run_groups(groups: Sequence[Sequence[EpisodeSpec]], context: RolloutContext) -> list[list[Rollout]]:
    """Play all games and return their rollouts in the same order."""
    places = Places(context.num_concurrent, max(map(len, groups), default=1))
    return list(await asyncio.gather(*(places.play(game, context) for game in groups)))
