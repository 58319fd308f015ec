"""The event loop of episodes. An environment's code cannot stop it, nor cancel tasks of slimrl or of other episodes.

An environment may cancel its own tasks, and its time-outs may cancel its own episode while the episode waits. A context
variable records whether an environment's code runs, and in which episode. Tasks and callbacks inherit the variable from
the code that creates them.

Code that never returns to the loop cannot be interrupted here: nothing is injected into a thread. An environment that
may hang belongs in a worker process, which can be killed (`held.py` watches environments in this process).
"""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from selectors import BaseSelector
from typing import Any, TypeVar

from slimrl.io.loop_thread import LoopThread
from slimrl.rollout.held import HeldWatch, hold_thread

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
    """A task of slimrl itself. An environment can cancel only the waiting task of its own episode."""

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


EPISODES = LoopThread("episodes", EpisodeLoop)


def run_episodes(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the process's loop of episodes, and return its result. Ctrl-C cancels it and raises
    KeyboardInterrupt, also if an environment holds the loop's thread."""
    return EPISODES.wait(main, HeldWatch(EPISODES))
