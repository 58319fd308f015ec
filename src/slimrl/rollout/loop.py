"""The event loop of episodes, which an environment's code can neither stop nor use to cancel what is not its own.

An environment may cancel the tasks that it has started, and time-outs within it cancel its own episode while that
waits. A context variable tells whose code runs: tasks and callbacks inherit it from the code that makes them.
"""

import asyncio
import signal
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from selectors import BaseSelector
from typing import Any, TypeVar

T = TypeVar("T")

# The task of the episode whose environment's code is running; None in slimrl's own code.
_episode: ContextVar[asyncio.Task[Any] | None] = ContextVar("episode", default=None)


@contextmanager
def environment_code() -> Iterator[None]:
    """Marks what runs inside as code of the environment of the current task's episode."""
    token = _episode.set(asyncio.current_task())
    try:
        yield
    finally:
        _episode.reset(token)


class _Task(asyncio.Task[Any]):
    """A task of slimrl's own."""

    def cancel(self, msg: Any = None) -> bool:
        episode = _episode.get()
        if episode is None:
            return super().cancel(msg)
        if episode is not self or asyncio.current_task() is self:
            raise RuntimeError("an environment cannot cancel tasks that are not its own")
        cancelled = super().cancel(msg)
        self.uncancel()  # it is the environment's affair: the episode itself goes on
        return cancelled


class EpisodeLoop(asyncio.SelectorEventLoop):
    """An event loop for episodes. Tasks that an environment starts in it are plain ones."""

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
    """What the coroutine gives, as by `asyncio.run`, in an `EpisodeLoop`. Ctrl-C cancels it, and raises
    KeyboardInterrupt."""
    with asyncio.Runner(loop_factory=EpisodeLoop) as runner:
        loop, own = runner.get_loop(), copy_context()
        task = loop.create_task(main)
        was_interrupted = False

        def interrupt(_signum: int, _frame: object) -> None:
            nonlocal was_interrupted
            if was_interrupted or task.done():
                raise KeyboardInterrupt
            was_interrupted = True
            own.run(task.cancel)  # the signal may have come while an environment's code ran
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
