"""A server of environments: one that somebody else has started, or one that is started here and restarted."""

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass

from slimrl.errors import RolloutError

MAX_STARTS = 16  # in a row, without a session that was answered


@dataclass(frozen=True, slots=True)
class Running:
    """A server that runs. `sessions` is how many it allows at once, 0 if unknown; `end` stops it for good."""

    url: str
    sessions: int = 0
    is_alive: Callable[[], bool] = lambda: True
    end: Callable[[], None] = lambda: None


class Server:
    """A server that `start` starts when it is first asked for, and restarts."""

    def __init__(self, what: str, start: Callable[[], Running]) -> None:
        """Make a server that does not run yet. Messages name it `what`; `start` raises UserError if it fails."""
        self._what, self._start = what, start
        self._starting = threading.Lock()
        self._running: Running | None = None
        self._end: Callable[[], object] = lambda: None
        self._num_starts = 0

    @property
    def sessions(self) -> int:
        """The number of sessions that the running server allows at once; 0 if unknown."""
        return self._running.sessions if self._running else 0

    def url(self) -> str:
        """Return the server's address, and start it if it does not run.

        Raises UserError if it cannot be started, and RolloutError after too many restarts.
        """
        with self._starting:
            if self._running is None or not self._running.is_alive():
                if self._num_starts == MAX_STARTS:
                    raise RolloutError(
                        "environment_died",
                        f"its {self._what} has ended {MAX_STARTS} times in a row without answering a session",
                    )
                self._num_starts += 1
                self.close()
                self._running = self._start()
                self._end = weakref.finalize(self, self._running.end)  # also at the exit of this process
            return self._running.url

    def note_answer(self) -> None:
        """Reset the count of starts: the server has answered a session."""
        self._num_starts = 0

    def close(self) -> None:
        """End the server if it was started here; a later `url` starts it again."""
        self._end()
        self._running = None
