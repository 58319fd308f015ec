"""A virtual clock for asyncio: coroutines sleep and wait as usual, but no real time passes."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
MOMENT_S = 1e-8  # after a sleep this long, every event of the same moment has happened


class _Clock(selectors.SelectSelector):
    """Advances the time where a real selector would wait."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "the simulation waits for an event that never happens"
        self.now += max(0.0, timeout)
        return []


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _Clock()
        super().__init__(self._clock)

    def time(self) -> float:
        """Return the simulated seconds since the start."""
        return self._clock.now


def now() -> float:
    """Return the seconds that the running simulation has taken so far."""
    return asyncio.get_running_loop().time()


def run_simulated(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a clock that starts at 0, and cancel the tasks that it leaves behind."""
    with asyncio.Runner(debug=False, loop_factory=_VirtualLoop) as runner:
        return runner.run(main)


class Changes:
    """Wakes all coroutines that wait for a change of the state that they share."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def announce(self) -> None:
        """Wake all waiting coroutines."""
        self._event.set()
        self._event.clear()

    async def wait(self) -> None:
        """Wait for the next announcement."""
        await self._event.wait()
