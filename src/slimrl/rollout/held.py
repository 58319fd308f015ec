"""Reports environment code that blocks the thread of episodes, with the time and the line. It cannot be interrupted."""

import math
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slimrl.errors import UserError
from slimrl.io.loop_thread import LoopThread

HELD_S = 30.0  # seconds before an environment that holds the thread is reported
LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
OURS = str(Path(__file__).parent)

_entered: dict[int, float | None] = {}  # thread id -> time at which the thread entered an environment's code


@contextmanager
def hold_thread() -> Iterator[None]:
    """Mark a block as an environment's code, which holds this thread."""
    with _enter(time.monotonic()):
        yield


@contextmanager
def release_thread() -> Iterator[None]:
    """Mark a block inside an environment's code as a wait of slimrl itself, which has its own time limit."""
    with _enter(None):
        yield


@contextmanager
def _enter(now: float | None) -> Iterator[None]:
    thread = threading.get_ident()
    before = _entered.get(thread)
    _entered[thread] = now
    try:
        yield
    finally:
        _entered[thread] = before and time.monotonic()


def hold_s(thread: int) -> float:
    """Return the seconds since a thread (an id of `get_ident`) entered an environment's code; 0 outside of it."""
    entered = _entered.get(thread)
    return time.monotonic() - entered if entered else 0.0


class HeldWatch:
    """A check for the caller that waits for episodes: it logs the first environment that holds their thread for more
    than `HELD_S` seconds, and raises UserError if an environment holds it for more than `limit_s` seconds."""

    def __init__(self, loop: LoopThread, limit_s: float = math.inf) -> None:
        self._loop, self._limit_s, self._has_logged = loop, limit_s, False

    def __call__(self) -> None:
        seconds = hold_s(self._loop.ident)
        if seconds <= HELD_S:
            return
        message = (
            f"an environment has held the run for {seconds:.0f} s{_place(self._loop.ident)}: code in the run's own "
            'process cannot be interrupted. Set `worker = "process"` in its [[orchestrator.env]], where that costs an '
            "episode"
        )
        if seconds > self._limit_s:
            raise UserError(f"{message}, and continue with `--resume`.")
        if not self._has_logged:
            self._has_logged = True
            print(f"{message}, or press Ctrl-C.", file=sys.stderr, flush=True)


def _place(thread: int) -> str:
    return place_in(traceback.extract_stack(sys._current_frames().get(thread)))


def place_in(stack: traceback.StackSummary) -> str:
    """Return the innermost stack line in the user's own code, in brackets; empty if all lines belong to libraries."""
    frames = [frame for frame in stack if not frame.filename.startswith((*LIBRARIES, "<", OURS))]
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno}, in {frames[-1].name})" if frames else ""
