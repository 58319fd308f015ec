"""The event loop of episodes. An environment's code cannot stop it, nor cancel tasks of others in it.

An environment may cancel its own tasks, and its time-outs may cancel its own episode while the episode waits. A context
variable records whose code runs: tasks and callbacks inherit it from the code that creates them.

Code that never returns to the loop cannot be interrupted here: nothing is injected into a thread. An environment that
may hang belongs in a worker process, which can be killed (`held.py` watches environments in this process).
"""

import asyncio
import signal
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from selectors import BaseSelector
from typing import Any, TypeVar

from slimrl.io.loop_thread import is_in_loop, run_in_thread
from slimrl.rollout.held import hold_s, hold_thread, report_held

T = TypeVar("T")

# The task of the episode whose environment's code runs; None in slimrl's own code.
_episode: ContextVar[asyncio.Task[Any] | None] = ContextVar("episode", default=None)


@contextmanager
def environment_code() -> Iterator[None]:
    """Mark the code in the block as the environment's, for the episode of the current task."""
    token = _episode.set(asyncio.current_task())
    try:
        with hold_thread():
            yield
    finally:
        _episode.reset(token)


class _Task(asyncio.Task[Any]):
    """A task of slimrl itself."""

    def cancel(self, msg: Any = None) -> bool:
        episode = _episode.get()
        if episode is None:
            return super().cancel(msg)
        if episode is not self or asyncio.current_task() is self:
            raise RuntimeError("an environment cannot cancel tasks that are not its own")
        cancelled = super().cancel(msg)
        self.uncancel()  # the environment handles this cancellation; the episode continues
        return cancelled


class EpisodeLoop(asyncio.SelectorEventLoop):
    """An event loop for episodes. Tasks that an environment starts in it are plain asyncio tasks."""

    def __init__(self, selector: BaseSelector | None = None) -> None:
        super().__init__(selector)
        self.set_task_factory(lambda loop, work, **more: self._kind()(work, loop=loop, **more))

    def stop(self) -> None:
        if _episode.get() is not None:
            raise RuntimeError("an environment cannot stop the event loop")
        super().stop()

    @staticmethod
    def _kind() -> type[asyncio.Task[Any]]:
        return _Task if _episode.get() is None else asyncio.Task


def run_episodes(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in an `EpisodeLoop` and return its result. Ctrl-C cancels it and raises KeyboardInterrupt.

    If this thread already runs a loop, as in a notebook, the episodes run in another thread.
    """
    if is_in_loop():
        return run_in_thread("episodes", main, EpisodeLoop)
    with asyncio.Runner(loop_factory=EpisodeLoop) as runner, report_held(threading.get_ident()):
        loop, own = runner.get_loop(), copy_context()
        task = loop.create_task(main)
        was_interrupted = False

        def interrupt(_signum: int, _frame: object) -> None:
            nonlocal was_interrupted
            # A cancellation would not reach environment code that never returns to the loop.
            if was_interrupted or task.done() or hold_s(threading.get_ident()):
                raise KeyboardInterrupt
            was_interrupted = True
            own.run(task.cancel)  # the signal may have arrived while an environment's code ran
            loop.call_soon_threadsafe(lambda: None)  # wakes a loop that waits

        handler = signal.getsignal(signal.SIGINT)
        catches = handler is signal.default_int_handler and threading.current_thread() is threading.main_thread()
        if catches:
            signal.signal(signal.SIGINT, interrupt)
        try:
            return loop.run_until_complete(task)
        except asyncio.CancelledError:
            if was_interrupted:
                raise KeyboardInterrupt from None
            raise
        finally:
            if catches:
                signal.signal(signal.SIGINT, handler)
