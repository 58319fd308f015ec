"""A client that records its idle time."""

import threading
import time

from slimrl.inference.client import Client, Completion
from slimrl.types import SamplingParams


class WatchedClient:
    """A wrapper of a client that measures the time in which no request is open. It is thread-safe."""

    def __init__(self, client: Client) -> None:
        self._client, self._lock = client, threading.Lock()
        self._num_open, self._idle_s, self._idle_before = 0, 0.0, 0.0
        self._began = self._since = time.perf_counter()

    @property
    def version(self) -> int:
        return self._client.version

    async def sample(self, prompt: list[int], params: SamplingParams) -> Completion:
        self._change(1)
        try:
            return await self._client.sample(prompt, params)
        finally:
            self._change(-1)

    def idle_s(self) -> float:
        """Return the total seconds in which no request was open."""
        self._change(0)
        return self._idle_s

    def idle_share(self) -> float:
        """Return the fraction of the time since the last call in which no request was open."""
        idle_s = self.idle_s()
        share = (idle_s - self._idle_before) / max(self._since - self._began, 1e-9)
        self._began, self._idle_before = self._since, idle_s
        return share

    def _change(self, by: int) -> None:
        with self._lock:
            now = time.perf_counter()
            if self._num_open == 0:
                self._idle_s += now - self._since
            self._num_open, self._since = self._num_open + by, now
