"""Waits between the episodes of one game. This module is independent of the game and of the players."""

import asyncio
from collections.abc import Callable

from slimrl.errors import RolloutError


class TurnTaking:
    """Turn taking between the episodes of one game, all in one event loop.

    An episode calls `notify` after it has changed the game, `wait_until` to wait for its turn, and `leave` in its
    `close`. The wait is part of a call into the environment, so `episode_timeout_s` must be long enough for the other
    side's reply with all its tries.
    """

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._left = ""

    async def wait_until(self, has_come: Callable[[], bool]) -> None:
        """Wait until `has_come()` is true. Raise RolloutError if a side has left, so that it never will be."""
        while not has_come():
            if self._left:
                raise RolloutError("partner_left", f"{self._left} left the table before the end of the game")
            await self._changed.wait()

    def notify(self) -> None:
        """Wake all waiting episodes, so that they check the game again."""
        # They hold the old event. New waits use the new one.
        self._changed.set()
        self._changed = asyncio.Event()

    def leave(self, role: str) -> None:
        """Fail the waits of the other sides, except those whose condition is already true."""
        self._left = self._left or role
        self.notify()
