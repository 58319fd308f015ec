"""Turns the failures of environment code into data: an exception, a time-out or a hang becomes a `RolloutError`.

`run_with_timeout` also interrupts code that never returns control to the event loop (`interruption.py`).
"""

import asyncio
import sysconfig
import traceback
import types
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from slimrl.errors import RolloutError, UserError, describe
from slimrl.rollout.interruption import Hang, run_bounded
from slimrl.rollout.loop import environment_code

T = TypeVar("T")
LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


@contextmanager
def convert_errors(source: str) -> Iterator[None]:
    """Convert every exception raised inside to a RolloutError that is counted as `drop/<source>_error`."""
    try:
        yield
    # Ctrl-C, cancellation and what closes a coroutine come from outside. An environment's `exit()` ends its episode.
    except (RolloutError, UserError, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit, Hang):
        raise
    except BaseException as error:
        raise RolloutError(f"{source}_error", f"{describe(error)}{_place(error)}") from error


def _place(error: BaseException) -> str:
    return place_in(traceback.extract_tb(error.__traceback__))


def place_in(stack: traceback.StackSummary) -> str:
    """Where the user's own code is in a stack: the innermost line that is no library's; empty if there is none."""
    frames = [
        frame for frame in stack if not frame.filename.startswith((*LIBRARIES, "<")) and frame.filename != __file__
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
    except (TimeoutError, Hang) as error:
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

    When the `first` timeout has cancelled the coroutine, the `last` one starts. When that expires too, `Hang` ends it.
    """
    resume: Callable[[], Any] = partial(work.send, None)
    is_closing = False
    while True:
        try:
            with environment_code():
                waiting_for = run_bounded(resume, limit_s)
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
                with suppress(Exception, Hang):
                    run_bounded(partial(work.throw, Hang()), limit_s, hung=True)
                raise
            if first.expired() and last.when() is None:
                last.reschedule(asyncio.get_running_loop().time() + limit_s)
            resume = partial(work.throw, error)
