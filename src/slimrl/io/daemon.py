"""Blocking calls in threads of their own, which neither an event loop nor the end of the program waits for."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

_running: set[threading.Thread] = set()


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
    """Await a call in a daemon thread. Cancelling abandons the thread, and its result is lost."""
    return await asyncio.wrap_future(start_in_daemon(call, name))


def has_blocked_calls() -> bool:
    """Return True if a call has not returned yet. A normal exit would end its thread, and PyTorch aborts on that."""
    return bool(_running)
