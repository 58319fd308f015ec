"""The one place where another's failure becomes data: an exception, a time-out or a hang turns into a `RolloutError`.

`bounded` also interrupts environment code that never gives control back (an endless loop without `await`): while that
code runs in the main thread, an interval timer is armed around each stretch of it. Code that catches everything is
interrupted once more behind its `except`, or else a bare `except:` in a loop would hold up the run for ever.
"""

import asyncio
import signal
import sys
import threading
import types
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
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
    except (Exception, SystemExit) as error:  # an environment's `exit()` ends its episode, not the run
        raise RolloutError(f"{source}_error", f"{type(error).__name__}: {error}") from error


async def bounded(work: Coroutine[Any, Any, T], source: str, timeout_s: float) -> T:
    """Await environment code for at most `timeout_s` seconds; raises RolloutError if it fails or takes longer.

    Code that catches its cancellation, to tidy up or by mistake, gets as long again.
    """
    try:
        async with asyncio.timeout(None) as last, asyncio.timeout(timeout_s) as first:
            with boundary(source):
                return await _interruptible(work, timeout_s, first, last)
    except (TimeoutError, _Hang) as error:
        raise RolloutError("timeout", f"the {source} took longer than episode_timeout_s = {timeout_s:g} s") from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RolloutError(f"{source}_error", "a task inside it was cancelled") from error  # nobody cancelled us


@types.coroutine
def _interruptible(
    work: Coroutine[Any, Any, T], limit_s: float, first: asyncio.Timeout, last: asyncio.Timeout
) -> Generator[Any, Any, T]:
    """Drive a coroutine as `await` would, with the timer armed whenever its own code runs.

    When the `first` timeout has cancelled it, the `last` one is set; when that expires too, the coroutine is ended.
    """
    resume: Callable[[], Any] = partial(work.send, None)
    while True:
        try:
            waiting_for = _run(resume, limit_s)
        except StopIteration as result:
            return result.value  # type: ignore[no-any-return]
        try:
            resume = partial(work.send, (yield waiting_for))
        except BaseException as error:  # cancellation and time-outs belong to the coroutine, as with `await`
            if last.expired():
                with suppress(Exception, _Hang):
                    _run(partial(work.throw, _Hang()), limit_s, hung=True)
                raise
            if first.expired() and last.when() is None:
                last.reschedule(asyncio.get_running_loop().time() + limit_s)
            resume = partial(work.throw, error)


def _run(resume: Callable[[], T], limit_s: float, hung: bool = False) -> T:
    """Call it and, whenever another `limit_s` seconds have passed, raise `_Hang` in its code, twice if it catches it.

    The second is raised on the first line that runs when the first has been dealt with: behind the `except` (most
    likely a bare one) that caught it, while `finally` and `with` may tidy up. `hung`: `resume` itself raises the first.
    Signals reach the main thread only; elsewhere this is a plain call.
    """
    if threading.current_thread() is not threading.main_thread():
        return resume()
    running = True

    def trace(_frame: types.FrameType, event: str, _arg: object) -> Any:
        if running and event == "line" and not isinstance(sys.exception(), _Hang):
            raise _Hang  # and Python stops tracing
        return trace

    def interrupt(_signum: int, frame: types.FrameType | None) -> None:
        if not running:
            return
        while frame and frame.f_code is not _run.__code__:
            frame.f_trace, frame = trace, frame.f_back
        sys.settrace(trace)  # for what is called from now on; what was running already has been told one by one
        raise _Hang

    handler, tracer = signal.signal(signal.SIGALRM, interrupt), sys.gettrace()
    try:
        signal.setitimer(signal.ITIMER_REAL, limit_s, limit_s)
        if hung:
            sys.settrace(trace)
        return resume()
    finally:
        running = False  # before anything is called, as Python runs signal handlers at calls
        sys.settrace(tracer)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
