"""Runs episodes in an event loop, and reports environments that block the loop's thread.

Code that never returns control to the loop cannot be interrupted here. An environment that may hang belongs in a worker
process, which can be killed. An environment that stops the loop or cancels other tasks of the loop belongs there, too.
"""

import math
import sys
import sysconfig
import traceback
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from slimrl.errors import UserError
from slimrl.io.loop_thread import CHECK_S, LoopThread

T = TypeVar("T")
EPISODES = LoopThread("episodes")
HELD_S = 30.0  # seconds before an environment that holds the thread is reported
LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
OURS = str(Path(__file__).parent)
# Work that is not an environment's: waits for a worker process, which have limits of their own, and sampling.
OWN_WORK = tuple(str(Path(__file__).parents[1] / name) for name in ("rollout/worker", "inference"))
INSTEAD = 'Set `worker = "process"` in its [[orchestrator.env]], where that costs an episode'
RESUME = "and continue with `--resume`."


def run_episodes(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in this process's event loop for episodes, and return its result. Ctrl-C cancels the coroutine
    and raises KeyboardInterrupt, even if an environment blocks the loop's thread."""
    return EPISODES.wait(main, HeldWatch())


class HeldWatch:
    """A check that is called every `CHECK_S` seconds while a caller waits for episodes. It logs the first environment
    that blocks the thread of the episodes for more than `HELD_S` seconds. It raises UserError after `limit_s` seconds,
    and if an environment has stopped the loop."""

    def __init__(self, limit_s: float = math.inf) -> None:
        self._limit_s, self._has_logged = limit_s, False
        self._num_missed = 0  # checks since the loop last ran a callback; a clock would count a stopped process

    def __call__(self) -> None:
        seconds = self._num_missed * CHECK_S
        self._num_missed += 1
        try:
            EPISODES.call_soon(self._hear)
        except RuntimeError as error:
            raise UserError(f"an environment has stopped the event loop of episodes. {INSTEAD}, {RESUME}") from error
        if seconds <= HELD_S:
            return
        stack = traceback.extract_stack(sys._current_frames().get(EPISODES.ident))
        if any(frame.filename.startswith(OWN_WORK) for frame in stack):
            self._num_missed = 0
            return
        message = (
            f"an environment has held the run for {seconds:.0f} s{place_in(stack)}: code in the run's own process "
            f"cannot be interrupted. {INSTEAD}"
        )
        if seconds > self._limit_s:
            raise UserError(f"{message}, {RESUME}")
        if not self._has_logged:
            self._has_logged = True
            print(f"{message}, or press Ctrl-C.", file=sys.stderr, flush=True)

    def _hear(self) -> None:
        self._num_missed = 0


def place_in(stack: traceback.StackSummary) -> str:
    """Return the innermost stack frame in the user's code, as text in brackets; empty if all frames belong to libraries
    or slimrl's rollout code."""
    frames = [frame for frame in stack if not frame.filename.startswith((*LIBRARIES, "<", OURS))]
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno}, in {frames[-1].name})" if frames else ""
