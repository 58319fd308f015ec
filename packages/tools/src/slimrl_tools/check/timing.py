"""Times the calls into an episode: their duration, and the longest stretch that each blocks the event loop.

A call that computes, or sleeps without `await`, blocks the loop and thereby all other episodes.
"""

import inspect
import time
import types
from collections.abc import Coroutine, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from slimrl.environments.base import new_episode
from slimrl.rollout.answers import close_episode
from slimrl.types import Environment, Message, Split, Task, Taskset, Turn

T = TypeVar("T")
MADE, START = "environment", "start"  # names of calls that are not steps


@dataclass(frozen=True, slots=True)
class Call:
    """One call into an episode, such as `step 2` or its construction, with its duration and the longest stretch for
    which it blocked the event loop."""

    name: str
    seconds: float
    hold_s: float


@dataclass(slots=True)
class TimedTaskset(Taskset):
    """A taskset that records the calls into its episodes in `calls`."""

    taskset: Taskset
    calls: list[Call] = field(default_factory=list)

    def tasks(self, split: Split) -> Sequence[Task]:
        return self.taskset.tasks(split)

    def environment(self, task: Task) -> Environment:
        began = time.perf_counter()
        episode = new_episode(self.taskset, task)
        seconds = time.perf_counter() - began
        self.calls.append(Call(MADE, seconds, seconds))
        return _TimedEpisode(episode, self.calls)


class _TimedEpisode:
    """An episode that forwards all calls. A result other than a coroutine is returned unchanged, so that its use
    fails."""

    def __init__(self, episode: Environment, calls: list[Call]) -> None:
        self._episode, self._calls, self._num_steps = episode, calls, 0

    def start(self) -> Coroutine[Any, Any, list[Message]]:
        return self._with_timer(START, self._episode.start())

    def step(self, reply: str) -> Coroutine[Any, Any, Turn]:
        self._num_steps += 1
        return self._with_timer(f"step {self._num_steps}", self._episode.step(reply))

    async def close(self) -> None:
        await close_episode(self._episode)

    def _with_timer(self, name: str, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        async def timed() -> T:
            began, stretches = time.perf_counter(), list[float]()
            try:
                return await _drive(work, stretches)
            finally:
                self._calls.append(Call(name, time.perf_counter() - began, max(stretches, default=0.0)))

        return timed() if inspect.iscoroutine(work) else work


@types.coroutine
def _drive(work: Coroutine[Any, Any, T], stretches: list[float]) -> Generator[Any, Any, T]:
    """Await a coroutine, and record how long it runs before each wait."""
    resume, value = work.send, None
    while True:
        began = time.perf_counter()
        try:
            waiting_for = resume(value)
        except StopIteration as result:
            return result.value  # type: ignore[no-any-return]
        finally:
            stretches.append(time.perf_counter() - began)
        try:
            resume, value = work.send, (yield waiting_for)
        except BaseException as error:  # as with `await`, cancellation and time-outs are raised in the coroutine
            resume, value = work.throw, error
