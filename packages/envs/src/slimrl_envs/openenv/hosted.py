"""Keeps a server of ours running: it is started when it is first asked for, and again when it has ended."""

import threading
from abc import ABC, abstractmethod

from slimrl.errors import RolloutError

MAX_STARTS = 16  # in a row, without a session that was answered


class HostedServer(ABC):
    """A server that this process starts and ends. `sessions` is how many it allows at once, 0 if that is not known."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._starting = threading.Lock()
        self._url, self._num_starts = "", 0
        self.sessions = 0

    def url(self) -> str:
        """The address of the server, which is started if it does not run. Raises UserError if it cannot be started at
        all, and RolloutError if it has ended too often."""
        with self._starting:
            if not self.runs(self._url):
                if self._num_starts == MAX_STARTS:
                    raise RolloutError(
                        "environment_died",
                        f"its {self._what} has ended {MAX_STARTS} times in a row without answering a session",
                    )
                self._num_starts += 1
                self.close()
                self._url = self.start()
            return self._url

    def note_answer(self) -> None:
        """Notes that the server has answered: it does not end before it can."""
        self._num_starts = 0

    @abstractmethod
    def runs(self, url: str) -> bool:
        """Whether the server runs that was started at this address; there is none at first."""

    @abstractmethod
    def start(self) -> str:
        """Starts the server, and returns its address. Raises UserError if it cannot be started."""

    @abstractmethod
    def close(self) -> None:
        """Ends the server, if it runs."""
