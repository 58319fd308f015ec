"""The event loop of episodes, and reports of environments that block its thread.

Code that never returns to the loop cannot be interrupted here: nothing is injected into a thread. An environment that
may hang belongs in a worker process, which can be killed. So does one that stops the loop or cancels other tasks.
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
    """Run a coroutine in the process's loop of episodes, and return its result. Ctrl-C cancels it and raises
    KeyboardInterrupt, also if an environment holds the loop's thread."""
    return EPISODES.wait(main, HeldWatch())


@contextmanager
def hold_thread(by_environment: bool = True) -> Iterator[None]:
    """Mark a block as an environment's code, which holds this thread; or, with False, as a wait of slimrl inside an
    environment's code, which has its own time limit."""
    thread = threading.get_ident()
    before = _entered.get(thread)
    _entered[thread] = time.monotonic() if by_environment else None
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
    """Return the innermost stack line in the user's own code, in brackets; empty if all lines belong to libraries."""
    frames = [frame for frame in stack if not frame.filename.startswith((*LIBRARIES, "<", OURS))]
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno}, in {frames[-1].name})" if frames else ""
