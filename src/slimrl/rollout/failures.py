"""Turns the failures of environment code into data: an exception, a time-out or a hang becomes a `RolloutError`.

`run_with_timeout` also interrupts code that never returns control to the event loop, such as an endless loop without an
`await`. While environment code runs in the main thread, an interval timer is armed, and its signal raises an exception
in that code. A bare `except:` in a loop would catch that exception and hold up the run for ever, so code that catches
it is interrupted once more behind its `except`.
"""

import asyncio
import signal
import sys
import sysconfig
import threading
import traceback
import types
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from slimrl.errors import RolloutError, UserError, describe
from slimrl.rollout.loop import environment_code

T = TypeVar("T")
LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


class _Hang(BaseException):
    """The interruption of code that held the thread for too long. It is no `Exception`, so that `except Exception` in
    that code does not catch it."""


@contextmanager
def convert_errors(source: str) -> Iterator[None]:
    """Convert every exception raised inside to a RolloutError that is counted as `drop/<source>_error`."""
    try:
        yield
    # Ctrl-C, cancellation and what closes a coroutine come from outside. An environment's `exit()` ends its episode.
    except (RolloutError, UserError, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit, _Hang):
        raise
    except BaseException as error:
        raise RolloutError(f"{source}_error", f"{describe(error)}{_place(error)}") from error


def _place(error: BaseException) -> str:
    """Where the user's own code raised an error: the innermost line that is no library's; empty if there is none."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((*LIBRARIES, "<")) and frame.filename != __file__
    ]
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno}, in {frames[-1].name})" if frames else ""


async def run_with_timeout(work: Coroutine[Any, Any, T], source: str, timeout_s: float) -> T:
    """Await environment code for at most `timeout_s` seconds. Raises RolloutError if it fails or takes longer.

    Code that catches its cancellation, to clean up or by mistake, gets the same time once more.
    """
    try:
        async with asyncio.timeout(None) as last, asyncio.timeout(timeout_s) as first:
            with convert_errors(source):
                return await _interruptible(work, timeout_s, first, last)
    except (TimeoutError, _Hang) as error:
        raise RolloutError("timeout", f"the {source} took longer than episode_timeout_s = {timeout_s:g} s") from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # Our own task was not cancelled, so the environment has cancelled one of its tasks.
        raise RolloutError(f"{source}_error", "a task inside it was cancelled") from error


@types.coroutine
def _interruptible(
    work: Coroutine[Any, Any, T], limit_s: float, first: asyncio.Timeout, last: asyncio.Timeout
) -> Generator[Any, Any, T]:
    """Drive a coroutine as `await` would, with the timer armed while its own code runs.

    When the `first` timeout has cancelled the coroutine, the `last` one starts. When that expires too, `_Hang` ends it.
    """
    resume: Callable[[], Any] = partial(work.send, None)
    is_closing = False
    while True:
        try:
            with environment_code():
                waiting_for = _run(resume, limit_s)
        except StopIteration as result:
            return result.value  # type: ignore[no-any-return]
        except GeneratorExit as error:
            if is_closing:
                raise
            raise RolloutError("environment_error", f"GeneratorExit{_place(error)}") from error
        try:
            resume = partial(work.send, (yield waiting_for))
        except BaseException as error:  # as with `await`, cancellation and time-outs are raised in the coroutine
            is_closing = isinstance(error, GeneratorExit)
            if last.expired():
                with suppress(Exception, _Hang):
                    _run(partial(work.throw, _Hang()), limit_s, hung=True)
                raise
            if first.expired() and last.when() is None:
                last.reschedule(asyncio.get_running_loop().time() + limit_s)
            resume = partial(work.throw, error)


@contextmanager
def without_alarm() -> Iterator[None]:
    """Stops the timer of `run_with_timeout` inside, where slimrl itself waits, and for a bounded time."""
    left, interval = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, interval)


def _run(resume: Callable[[], T], limit_s: float, hung: bool = False) -> T:
    """Call `resume`, and raise `_Hang` in the code that runs whenever another `limit_s` seconds have passed.

    Code that catches a `_Hang` gets a second one on the first line behind the `except` that caught it (most likely a
    bare one). `finally` and `with` blocks may still clean up. With `hung`, `resume` itself raises the first `_Hang`.
    Signals reach the main thread only; in other threads this is a plain call.
    """
    if threading.current_thread() is not threading.main_thread():
        return resume()
    running = True

    def trace(_frame: types.FrameType, event: str, _arg: object) -> Any:
        if running and event == "line" and not isinstance(sys.exception(), _Hang):
            raise _Hang  # an exception in a trace function also ends the tracing
        return trace

    def interrupt(_signum: int, frame: types.FrameType | None) -> None:
        if not running:
            return
        # A bare `except:` would catch the exception raised below. Python calls a trace function before each line, which
        # lets us raise it again on the next line. `settrace` alone covers functions that are called from now on, so
        # every frame between here and `_run`, which is running already, gets the trace function by hand.
        while frame and frame.f_code is not _run.__code__:
            frame.f_trace, frame = trace, frame.f_back
        sys.settrace(trace)
        raise _Hang

    handler, tracer = signal.signal(signal.SIGALRM, interrupt), sys.gettrace()
    try:
        signal.setitimer(signal.ITIMER_REAL, limit_s, limit_s)
        if hung:
            sys.settrace(trace)
        return resume()
    finally:
        running = False  # first of all: Python runs signal handlers at calls, and the next lines make some
        sys.settrace(tracer)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
