"""Converts failures of environment code: an exception or a time-out becomes a `RolloutError`.

A time-out cancels code that waits. Code that never returns control to the event loop cannot be cancelled. If it runs in
a worker process, the process is killed (`worker/`). Otherwise the hang is only reported (`loop.py`).
"""

import asyncio
import traceback
import types
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from slimrl.errors import RolloutError, UserError, describe
from slimrl.rollout.loop import place_in

T = TypeVar("T")


@contextmanager
def convert_errors(source: str) -> Iterator[None]:
    """Context manager: convert exceptions to a RolloutError that is counted as `drop/<source>_error`. RolloutErrors,
    UserErrors and cancellations pass unchanged."""
    try:
        yield
    # slimrl itself cancels and closes coroutines, so these exceptions pass. An `exit()` in an environment fails its
    # episode. A KeyboardInterrupt comes from the environment, too, because Ctrl-C reaches only the main thread.
    except (RolloutError, UserError, asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:
        raise RolloutError(f"{source}_error", f"{describe(error)}{_place(error)}") from error


def _place(error: BaseException) -> str:
    return place_in(traceback.extract_tb(error.__traceback__))


async def run_with_timeout(work: Coroutine[Any, Any, T], source: str, timeout_s: float) -> T:
    """Await environment code for at most `timeout_s` seconds. Raise RolloutError if it fails or takes longer.

    Code that catches its cancellation, for example to clean up, may run for another `timeout_s` seconds.
    """
    try:
        async with asyncio.timeout(None) as last, asyncio.timeout(timeout_s) as first:
            with convert_errors(source):
                return await _drive(work, timeout_s, first, last)
    except TimeoutError as error:
        raise RolloutError("timeout", f"the {source} took longer than episode_timeout_s = {timeout_s:g} s") from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # The current task was not cancelled, so the environment has cancelled one of its tasks.
        raise RolloutError(f"{source}_error", "a task inside it was cancelled") from error


@types.coroutine
def _drive(
    work: Coroutine[Any, Any, T], limit_s: float, first: asyncio.Timeout, last: asyncio.Timeout
) -> Generator[Any, Any, T]:
    """Run a coroutine like `await`, but leave code that refuses its cancellation.

    When the `first` timeout has cancelled the coroutine, the `last` timeout of `limit_s` seconds starts. When the
    `last` timeout expires too, the coroutine is closed at its current await.
    """
    resume: Callable[[], Any] = partial(work.send, None)
    is_closing = False
    while True:
        try:
            waiting_for = resume()
        except StopIteration as result:
            return result.value  # type: ignore[no-any-return]
        except GeneratorExit as error:
            if is_closing:
                raise
            raise RolloutError("environment_error", f"GeneratorExit{_place(error)}") from error
        try:
            resume = partial(work.send, (yield waiting_for))
        except BaseException as error:  # as with `await`, raise cancellations and time-outs in the coroutine
            is_closing = isinstance(error, GeneratorExit)
            if last.expired():
                with suppress(RuntimeError):  # the coroutine may catch this too; then leave it
                    work.close()
                raise
            if first.expired() and last.when() is None:
                last.reschedule(asyncio.get_running_loop().time() + limit_s)
            resume = partial(work.throw, error)
