"""An event loop in a thread of its own, for what outlives a step: every step of a run has another event loop, and a
connection belongs to the one that it was opened in. Knows nothing of what runs in it.
"""

import asyncio
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
CLOSE_S = 2.0


class LoopThread:
    """Runs coroutines for other threads until `close`, or until nobody holds it any more.

    The thread never holds up the end of the program: it is a daemon, and waits for nothing but its loop.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=_serve, args=(self._loop,), name=name, daemon=True)
        thread.start()
        self._kept: list[Future[None]] = []  # the loop itself would let them go
        self._end = weakref.finalize(self, _end, self._loop, thread, self._kept)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns or raises, from any event loop. Cancelled with whoever waits for it."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """The same for code that is not asynchronous."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()  # nothing, unless the waiting was interrupted

    def keep(self, close: Callable[[], Awaitable[None]]) -> None:
        """Have the thread call `close` when it ends."""
        self._kept.append(asyncio.run_coroutine_threadsafe(_kept(close), self._loop))

    def close(self) -> None:
        """Cancels what still runs, and ends the thread. A second call does nothing."""
        self._end()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread, kept: list[Future[None]]) -> None:
    asyncio.run_coroutine_threadsafe(_cancel_all(), loop)
    if threading.current_thread() is not thread:  # where the last one to hold it may have been
        thread.join(CLOSE_S)
        kept.clear()


async def _kept(close: Callable[[], Awaitable[None]]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        await close()


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    asyncio.get_running_loop().stop()
