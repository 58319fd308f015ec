"""Limits the time for which a client may delay an HTTP server, and the number of connections.

uvicorn itself limits the size of heads. The module does not depend on the application.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_HEAD_BYTES = 32 * 2**10
HEAD_S = 10.0  # seconds for a whole head, counted from the connection or from the head's first byte
BODY_S = 60.0  # seconds for a whole body
# Longer than clients keep an idle connection (httpx: 5 s): if both sides close at the same moment, a request that is
# just being sent is lost.
KEEP_ALIVE_S = 60.0
UNREAD_S = 60.0  # seconds for a client to read the sent part of a response, before the next part is written
LOOK_S = 0.1  # seconds between two checks of a connection
FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Connection(H11Protocol):
    """uvicorn's protocol. A connection is closed if its client delays the server for too long. uvicorn refuses requests
    at `limit_concurrency` connections. Before that, a new connection is answered with 503 and `on_full` is called."""

    def __init__(self, on_full: Callable[[], None], **settings: Any) -> None:
        super().__init__(**settings)
        self._on_full = on_full
        self._num_resumed = 0
        self._waiting_for: object = None
        self._since = 0.0  # the start of this wait
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) >= (self.limit_concurrency or 0):
            self.connections.discard(self)
            transport.write(FULL)
            transport.close()
            self._on_full()
        else:
            self._look()

    def _find_wait(self) -> tuple[object, float]:
        """Return an identifier of the wait for the client, or None without a wait, and the allowed seconds."""
        if self.flow.write_paused or self.transport.is_closing():
            return ("reader", self._num_resumed), UNREAD_S
        if self.conn.their_state is h11.SEND_BODY:
            return ("body", self.cycle), BODY_S
        if self.conn.their_state is h11.IDLE:
            has_begun = bool(self.conn.trailing_data[0])
            return ("head", self.cycle, has_begun), HEAD_S if has_begun or not self.cycle else KEEP_ALIVE_S
        return None, 0.0

    def _look(self) -> None:
        """Close the connection if the present wait has exceeded its limit. Schedule the next check."""
        awaited, limit_s = self._find_wait()
        now = time.monotonic()
        if awaited != self._waiting_for:
            self._waiting_for, self._since = awaited, now
        elif awaited is not None and now - self._since >= limit_s:
            self.transport.abort()
        self._timer = self.loop.call_later(LOOK_S, self._look)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._num_resumed += 1

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._timer:
            self._timer.cancel()
