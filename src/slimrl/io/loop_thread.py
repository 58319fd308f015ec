"""An event loop in a separate thread, for connections that outlive a step. Independent of the code in it.

Every step of a run has a new event loop, and a connection works only in the loop in which it was opened.
"""

import asyncio
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
CLOSE_S = 2.0
_running: set[threading.Thread] = set()  # threads of `start_in_daemon`


class LoopThread:
    """A thread that runs coroutines for other threads, until `close` or until the object is garbage.

    It is a daemon, so it never delays the end of the program.
    """

    def __init__(self, name: str, new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop) -> None:
        self._loop = new_loop()
        self._thread = thread = threading.Thread(target=_serve, args=(self._loop,), name=name, daemon=True)
        thread.start()
        # A loop holds its tasks weakly: without this list they could be collected before they have run.
        self._closers: list[Future[None]] = []
        # `finalize` must not refer to `self`, or the object could never become garbage.
        self._end = weakref.finalize(self, _end, self._loop, thread, self._closers)

    @property
    def is_alive(self) -> bool:
        """True while the thread runs."""
        return self._thread.is_alive()

    @property
    def ident(self) -> int:
        """The number of the thread, as returned by `threading.get_ident` there."""
        assert self._thread.ident is not None
        return self._thread.ident

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start `work` and return its future result. Cancelling the future cancels the work."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`, awaited from any event loop. The work is cancelled if the caller is."""
        return await asyncio.wrap_future(self.start(work))

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`, for a synchronous caller."""
        future = self.start(work)
        try:
            return future.result()
        finally:
            future.cancel()  # stops the work if the wait was interrupted; does nothing if it is done

    def keep(self, close: Callable[[], Awaitable[None]]) -> None:
        """Call `close` in the thread when it ends."""
        self._closers.append(asyncio.run_coroutine_threadsafe(_close_at_end(close), self._loop))

    def close(self) -> None:
        """Cancel the running work, and end the thread. A second call does nothing."""
        self._end()


def is_in_loop() -> bool:
    """Return True if an event loop runs in this thread, as in a notebook: asyncio refuses a second one there."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def run_in_thread(
    name: str,
    work: Coroutine[Any, Any, T],
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
) -> T:
    """Run a coroutine in a separate thread, and wait for its result. Ctrl-C cancels it."""
    thread = LoopThread(name, new_loop)
    try:
        return thread.wait(work)
    finally:
        thread.close()


def call_outside_loop(call: Callable[[], T]) -> T:
    """Call code that may run its own event loop; in another thread if one already runs in this thread."""
    return start_in_daemon(call, "outside loop").result() if is_in_loop() else call()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop until it is stopped: the whole life of the thread."""
    try:
        loop.run_forever()
    finally:
        loop.close()


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread, closers: list[Future[None]]) -> None:
    """Cancel all work in the loop, and wait a little for the thread to end."""
    if not thread.is_alive():  # its loop takes no more work
        return
    asyncio.run_coroutine_threadsafe(_cancel_all(), loop)
    # The last reference may be dropped inside the thread, which cannot join itself.
    if threading.current_thread() is not thread:
        thread.join(CLOSE_S)
        closers.clear()


async def _close_at_end(close: Callable[[], Awaitable[None]]) -> None:
    """Wait for cancellation, then call `close` in the loop in which the connection was opened."""
    try:
        await asyncio.Event().wait()
    finally:
        await close()


async def _cancel_all() -> None:
    """Cancel every other task of the loop, wait for them, and stop the loop."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    asyncio.get_running_loop().stop()


def start_in_daemon(call: Callable[[], T], name: str) -> "Future[T]":
    """Start a call in a daemon thread, and return its future result."""
    result: Future[T] = Future()

    def run() -> None:
        _running.add(threading.current_thread())
        try:
            result.set_result(call())
        except BaseException as error:  # raised where the result is awaited
            result.set_exception(error)
        finally:
            _running.discard(threading.current_thread())

    result.set_running_or_notify_cancel()  # the call cannot be cancelled, only abandoned
    threading.Thread(target=run, name=name, daemon=True).start()
    return result


async def call_in_daemon(call: Callable[[], T], name: str) -> T:
    """Await a call in a daemon thread. Cancelling abandons the thread, and its result is lost."""
    return await asyncio.wrap_future(start_in_daemon(call, name))


def has_blocked_calls() -> bool:
    """Return True if a call has not returned yet. A normal exit would end its thread, and PyTorch aborts on that."""
    return bool(_running)
