"""Where episodes of one game wait for one another. Knows nothing of the game, nor of who plays it."""

import asyncio
from collections.abc import Callable

from slimrl.errors import RolloutError


class TurnTaking:
    """For the episodes of one game, all in one event loop.

    An episode calls `moved` when it has changed the game, `until` to wait for its turn, and `leave` in its `close`.
    The wait is part of its call, so `episode_timeout_s` must be long enough for the other's reply, with all its tries.
    """

    def __init__(self) -> None:
        self._moved = asyncio.Event()
        self._left = ""

    async def until(self, has_come: Callable[[], bool]) -> None:
        """Raises RolloutError if it can no longer come, as somebody has left."""
        while not has_come():
            if self._left:
                raise RolloutError("partner_left", f"{self._left} left the table before the end of the game")
            await self._moved.wait()

    def moved(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    def leave(self, role: str) -> None:
        """Whoever still waits for something that has not come waits in vain."""
        self._left = self._left or role
        self.moved()
