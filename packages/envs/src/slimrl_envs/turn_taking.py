"""Makes the episodes of one game wait for one another. This module is independent of the game and of the players."""

import asyncio
from collections.abc import Callable

from slimrl.errors import RolloutError


class TurnTaking:
    """The turns of one game, in which each player has an episode. All episodes run in one event loop.

    An episode calls `notify` after it has changed the game, `wait_until` to wait for its turn, and `leave` in its
    `close`. The wait is part of a call into the environment, so `episode_timeout_s` must be long enough for the other
    player's reply, including retries.
    """

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._left = ""

    async def wait_until(self, has_come: Callable[[], bool]) -> None:
        """Wait until `has_come()` returns True. Raise RolloutError if another player leaves the game first."""
        while not has_come():
            if self._left:
                raise RolloutError("partner_left", f"{self._left} left the table before the end of the game")
            await self._changed.wait()

    def notify(self) -> None:
        """Wake all waiting episodes, so that they check the game again."""
        # The waiting episodes hold the old event. Later waits use the new event.
        self._changed.set()
        self._changed = asyncio.Event()

    def leave(self, role: str) -> None:
        """Record that the player of `role` has left. For the other players, `wait_until` then fails, unless the awaited
        condition is already true."""
        self._left = self._left or role
        self.notify()
