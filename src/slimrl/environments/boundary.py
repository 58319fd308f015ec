"""The one place where another's failure becomes data: an exception, a time-out or a hang turns into a `RolloutError`.

`bounded` also interrupts environment code that never gives control back (an endless loop without `await`): while that
code runs in the main thread, an interval timer is armed around each stretch of it.
"""

import asyncio
import signal
import threading
import types
from collections.abc import Coroutine, Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from slimrl.errors import RolloutError, UserError

T = TypeVar("T")


class _Hang(BaseException):
    """Environment code held the thread for too long. No `Exception`, so that its own handlers let it pass."""


@contextmanager
def boundary(source: str) -> Iterator[None]:
    """Attribute whatever fails inside to `source`, as `drop/<source>_error`."""
    try:
        yield
    except (RolloutError, UserError):
        raise
    except Exception as error:
        raise RolloutError(f"{source}_error", f"{type(error).__name__}: {error}") from error


async def bounded(work: Coroutine[Any, Any, T], source: str, timeout_s: float) -> T:
    """Await environment code for at most `timeout_s` seconds; raises RolloutError if it fails or takes longer."""
    try:
        async with asyncio.timeout(timeout_s):
            with boundary(source):
                return await _interruptible(work, timeout_s)
    except (TimeoutError, _Hang) as error:
        raise RolloutError(
            "timeout", f"the {source} took longer than orchestrator.episode_timeout_s = {timeout_s:g} s"
        ) from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RolloutError(f"{source}_error", "a task inside it was cancelled") from error  # nobody cancelled us


@types.coroutine
def _interruptible(work: Coroutine[Any, Any, T], limit_s: float) -> Generator[Any, Any, T]:
    """Drive a coroutine as `await` would, with the timer armed whenever its own code runs."""
    value: Any = None
    failure: BaseException | None = None
    while True:
        try:
            with _alarm(limit_s):
                waiting_for = work.send(value) if failure is None else work.throw(failure)
        except StopIteration as result:
            return result.value  # type: ignore[no-any-return]
        value, failure = None, None
        try:
            value = yield waiting_for
        except BaseException as error:  # cancellation and time-outs belong to the coroutine, as with `await`
            failure = error


@contextmanager
def _alarm(limit_s: float) -> Iterator[None]:
    """Raise `_Hang` in this code if it runs longer. Signals reach the main thread only; elsewhere it does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(signum: int, frame: object) -> None:
        raise _Hang

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
