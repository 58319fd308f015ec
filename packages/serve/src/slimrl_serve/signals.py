"""Lets a program that serves stop in order when it receives a signal."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def until_signal() -> Iterator[threading.Event]:
    """Yield an event that the first SIGTERM or SIGINT sets. A second signal raises KeyboardInterrupt at once."""
    stopped = threading.Event()

    def stop(number: int, frame: object) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    earlier = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopped
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
