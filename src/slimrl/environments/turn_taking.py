"""How the episodes of one game wait for one another. Knows nothing of the game, nor of who plays it."""

import asyncio
from collections.abc import Callable

from slimrl.errors import RolloutError


class TurnTaking:
    """Turn taking between the episodes of one game, all in one event loop.

    An episode calls `notify` when it has changed the game, `wait_until` to wait for its turn, and `leave` in its
    `close`. The wait is part of a call into the environment, so `episode_timeout_s` must be long enough for the other
    side's reply with all its tries.
    """

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._left = ""

    async def wait_until(self, has_come: Callable[[], bool]) -> None:
        """Waits until `has_come()` is true. Raises RolloutError if a side has left, so that it never will be."""
        while not has_come():
            if self._left:
                raise RolloutError("partner_left", f"{self._left} left the table before the end of the game")
            await self._changed.wait()

    def notify(self) -> None:
        """Wakes all who wait, so that they look at the game again."""
        # They hold the old event. Who begins to wait from now on waits for the next change.
        self._changed.set()
        self._changed = asyncio.Event()

    def leave(self, role: str) -> None:
        """Ends the waits of the other sides with an error, unless what they wait for has come."""
        self._left = self._left or role
        self.notify()
