"""Starts the server if its required packages are installed. This module imports none of these packages."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from slimrl.config.reading.load import Resolved
from slimrl.config.serve import ServeConfig
from slimrl.errors import require
from slimrl.plugins import call

NEEDED = ("fastapi", "uvicorn")


def run_inference(resolved: Resolved[ServeConfig]) -> int:
    """Run the `inference` command: serve until SIGTERM or Ctrl-C. Raises UserError as `serve` does."""
    return serve(resolved.config, lambda address: None)


def serve(config: ServeConfig, announce: Callable[[str], None]) -> int:
    """Serve until SIGTERM or Ctrl-C, as `slimrl_serve.command.serve` does. Raises UserError if the extra `server` is
    missing."""
    check_packages()
    return int(call("slimrl_serve.command:serve", config, announce))


def check_packages() -> None:
    """Raise UserError if the extra `server` is missing."""
    for module in NEEDED:
        require(module, "server", "The inference server")


@contextmanager
def until_signal() -> Iterator[threading.Event]:
    """Context manager: yield an event that the first SIGTERM or SIGINT sets. The second raises KeyboardInterrupt."""
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
