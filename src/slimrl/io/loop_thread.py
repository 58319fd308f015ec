"""The event loops of a process, each in a daemon thread.

There are two loops. `PROCESS_LOOP` runs slimrl's work: connections to servers, and sampling during training. The other
loop (`rollout/loop.py`) runs episodes. The loops are separate because an environment may block its loop, but must not
block the sampler or the transfer of weights. A loop starts at its first use, and ends with the process.
"""

import asyncio
import atexit
import os
import sys
import threading
import traceback
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from typing import Any, TypeVar

T = TypeVar("T")
CLOSE_S = 2.0  # seconds for cancelled work to clean up
CHECK_S = 1.0  # seconds between two checks during a wait
_running: set[threading.Thread] = set()  # threads of `start_in_daemon`


class LoopThread:
    """An event loop in a daemon thread, which does not delay the program's end. It runs coroutines for other
    threads."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._starting = threading.RLock()  # reentrant, because garbage collection may start work at any time
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = 0  # the id of the process that started the thread

    @property
    def ident(self) -> int:
        """The id of the thread (see `threading.get_ident`); 0 before the thread starts."""
        return (self._thread and self._thread.ident) or 0

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start `work` and return its future result. Cancelling the future cancels the work."""
        with self._starting:
            if self._loop is None or self._process != os.getpid():  # the thread does not exist in a forked process
                self._loop, self._process = asyncio.new_event_loop(), os.getpid()
                self._thread = threading.Thread(target=_serve, args=(self._loop,), name=self._name, daemon=True)
                self._thread.start()
                atexit.register(_end, self._loop, self._thread)
            loop = self._loop
        return asyncio.run_coroutine_threadsafe(work, loop)

    def call_soon(self, call: Callable[[], None]) -> None:
        """Call `call` in the loop as soon as its thread is free. Raise RuntimeError if the loop was stopped."""
        if self._loop:
            self._loop.call_soon_threadsafe(call)

    def abandon(self) -> None:
        """Stop using a loop whose thread is blocked. The next call of `start` makes another loop."""
        self._loop = None

    def wait(self, work: Coroutine[Any, Any, T], check: Callable[[], None] = lambda: None) -> T:
        """Run `work` and return its result. This is for synchronous callers. Ctrl-C cancels the work. `check` is called
        every `CHECK_S` seconds. If `check` raises an exception, the work is cancelled, too."""
        assert threading.current_thread() is not self._thread, "the loop cannot wait for itself"
        ended = threading.Event()
        future = self.start(_note_end(work, ended))
        try:
            while not wait_for([future], CHECK_S).done:
                check()
            return future.result()
        except BaseException:
            future.cancel()
            if not ended.wait(CLOSE_S):
                self.abandon()
            raise


PROCESS_LOOP = LoopThread("slimrl")


class LoopTasks:
    """The tasks of one object, such as a client, in a loop of the process. `close` cancels all tasks, and then closes
    the object's connections. Garbage collection of the LoopTasks does the same. Work that starts later is cancelled at
    once."""

    def __init__(self, *connections: Callable[[], Awaitable[None]], loop: LoopThread = PROCESS_LOOP) -> None:
        self._loop = loop
        self._tasks: set[asyncio.Task[Any]] = set()
        # `finalize` must not refer to `self`. Otherwise the object would never be garbage-collected.
        self._end = weakref.finalize(self, _end_tasks, loop, self._tasks, connections)
        self._end.atexit = False

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start `work` and return its future result. Cancelling the future cancels the work."""
        return self._loop.start(self._track(work))

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` and return its result, for callers in any event loop. Cancelling the caller cancels the work."""
        return await asyncio.wrap_future(self.start(work))

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` and return its result. This is for synchronous callers."""
        return self._loop.wait(self._track(work))

    def close(self) -> None:
        """Cancel the tasks, close the connections, and wait for both for a short time. A second call does nothing."""
        if (closing := self._end()) and not wait_for([closing], 2 * CLOSE_S).done:
            self._loop.abandon()

    async def _track(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task
        if not self._end.alive:  # `close` has cancelled the tasks, and may have closed the connections
            work.close()
            raise asyncio.CancelledError
        self._tasks.add(task)
        try:
            return await work
        finally:
            self._tasks.discard(task)


async def gather_all(*works: Coroutine[Any, Any, T], at_once: int = sys.maxsize) -> list[T]:
    """Run all `works` concurrently, at most `at_once` at a time, and return their results. If one of them raises an
    exception, cancel the others, wait until they have stopped, and raise the exception."""
    places = asyncio.Semaphore(at_once)

    async def run(work: Coroutine[Any, Any, T]) -> T:
        async with places:
            return await work

    tasks = [asyncio.create_task(run(work)) for work in works]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for work in works:
            work.close()  # for works that had no place yet
        raise


def call_outside_loop(call: Callable[[], T]) -> T:
    """Return the result of `call`, which may start an event loop. If a loop already runs in this thread, as in a
    notebook, run `call` in another thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call()
    return start_in_daemon(call, "outside loop").result()


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
    """Run a call in a daemon thread, and return its result. A cancellation drops the result, but the call continues."""
    return await asyncio.wrap_future(start_in_daemon(call, name))


def has_blocked_calls() -> bool:
    """Return True if a call of `start_in_daemon` is still running. In that case the process must not exit normally:
    ending a thread inside PyTorch's code aborts the process."""
    return bool(_running)


async def _note_end(work: Coroutine[Any, Any, T], ended: threading.Event) -> T:
    try:
        return await work
    finally:
        ended.set()


async def _cancel(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel the tasks, and wait at most `CLOSE_S` seconds until they have stopped."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=CLOSE_S)


def _end_tasks(
    loop: LoopThread, tasks: set[asyncio.Task[Any]], connections: Sequence[Callable[[], Awaitable[None]]]
) -> "Future[None] | None":
    """Start a coroutine in `loop` that cancels the tasks and then closes the connections. Return its future, or None if
    the loop never started."""

    async def end() -> None:
        await _cancel(tasks)
        for close in connections:
            await close()

    return loop.start(end()) if loop.ident else None  # without a loop there are no tasks and no connections


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop in its thread until the process ends."""
    while not loop.is_closed():
        try:
            loop.run_forever()
            loop.close()
        except (SystemExit, KeyboardInterrupt):  # from a task or callback that an environment left behind
            traceback.print_exc()


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    """Cancel all work in the loop, and wait a short time until the thread has ended."""

    async def end() -> None:
        await _cancel(asyncio.all_tasks() - {asyncio.current_task()})
        asyncio.get_running_loop().stop()

    if not loop.is_closed():  # else an environment has stopped it
        asyncio.run_coroutine_threadsafe(end(), loop)
        thread.join(CLOSE_S)
