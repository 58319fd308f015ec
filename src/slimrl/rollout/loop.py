"""Runs episodes in an event loop, and reports environments that block the loop's thread.

Code that never returns control to the loop cannot be interrupted here. An environment that may hang belongs in a worker
process, which can be killed. An environment that stops the loop or cancels other tasks of the loop belongs there, too.
"""

import math
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from slimrl.errors import UserError
from slimrl.io.loop_thread import LoopThread

T = TypeVar("T")
EPISODES = LoopThread("episodes")
HELD_S = 30.0  # seconds before an environment that holds the thread is reported
LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
OURS = str(Path(__file__).parent)

_entered: dict[int, float | None] = {}  # thread id -> time at which the thread entered an environment's code


def run_episodes(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in this process's event loop for episodes, and return its result. Ctrl-C cancels the coroutine
    and raises KeyboardInterrupt, even if an environment blocks the loop's thread."""
    return EPISODES.wait(main, HeldWatch())


@contextmanager
def hold_thread(by_environment: bool = True) -> Iterator[None]:
    """Context manager: measure how long an environment's code in the block holds this thread (`hold_s`). With False,
    stop the measurement during the block: slimrl itself waits there, and this wait has its own time limit."""
    thread = threading.get_ident()
    before = _entered.get(thread)
    _entered[thread] = time.monotonic() if by_environment else None
    try:
        yield
    finally:
        _entered[thread] = before and time.monotonic()


def hold_s(thread: int) -> float:
    """Return the seconds since a thread entered an environment's code; 0 if it runs other code. `thread` is an id from
    `get_ident`."""
    entered = _entered.get(thread)
    return time.monotonic() - entered if entered else 0.0


class HeldWatch:
    """A check that is called repeatedly while a caller waits for episodes. It logs the first environment that blocks
    the episodes' thread for over `HELD_S` seconds. It raises UserError if one blocks the thread for over `limit_s`."""

    def __init__(self, limit_s: float = math.inf) -> None:
        self._limit_s, self._has_logged = limit_s, False

    def __call__(self) -> None:
        seconds = hold_s(EPISODES.ident)
        if seconds <= HELD_S:
            return
        place = place_in(traceback.extract_stack(sys._current_frames().get(EPISODES.ident)))
        message = (
            f"an environment has held the run for {seconds:.0f} s{place}: code in the run's own process cannot be "
            'interrupted. Set `worker = "process"` in its [[orchestrator.env]], where that costs an episode'
        )
        if seconds > self._limit_s:
            raise UserError(f"{message}, and continue with `--resume`.")
        if not self._has_logged:
            self._has_logged = True
            print(f"{message}, or press Ctrl-C.", file=sys.stderr, flush=True)


def place_in(stack: traceback.StackSummary) -> str:
    """Return the innermost stack frame in the user's code, as text in brackets; empty if all frames belong to libraries
    or slimrl's rollout code."""
    frames = [frame for frame in stack if not frame.filename.startswith((*LIBRARIES, "<", OURS))]
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno}, in {frames[-1].name})" if frames else ""
