"""Limits the time for which the clients of an HTTP server may delay it, and their number.

uvicorn itself limits heads, idle connections after a response, and concurrent requests. `Watch` adds the other times
and the number of connections. The module does not depend on the application.
"""

import asyncio
import ipaddress
import logging
import sys
import time
from collections import Counter
from collections.abc import Collection
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

LOG = logging.getLogger("slimrl.server")
MAX_HEAD_BYTES = 32 * 2**10
HEAD_S = 10.0  # for a whole head, counted from the connection or from its first byte
BODY_S = 60.0  # for a whole body
# Longer than clients keep an idle connection (httpx: 5 s): if both sides close at the same moment, a request that is
# just being sent is lost.
KEEP_ALIVE_S = 60.0
UNREAD_S = 60.0  # for a client to read the sent part of a response, before more of it is written
LINGER_S = 2.0  # wait after a refusal, because further bytes would reset a closed connection and lose the answer
LOOK_S = 0.1  # between two checks of `Watch`
NOTICE_S = 60.0  # between two log lines about missing places
TEXTS = {
    400: "This is no HTTP/1.1 request that can be read: its head is malformed, or its body's length is unclear.",
    408: f"The request came too slowly: its head may take {HEAD_S:.0f} s, and its body {BODY_S:.0f} s.",
    431: f"The head of the request is larger than {MAX_HEAD_BYTES // 2**10} KiB.",
}


class Connection(H11Protocol):
    """uvicorn's protocol. It refuses unreadable requests, and shows which part of a request the server waits for."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._refused = False
        self._num_resumed = 0

    @property
    def network(self) -> str:
        """The network of the client."""
        return network_of(self.client[0]) if self.client else ""

    def awaited(self) -> tuple[object, float]:
        """Return the awaited thing, or None, and the allowed seconds."""
        state, has_begun = self.conn.their_state, bool(self.conn.trailing_data[0])
        if self._refused or self.transport.is_closing():
            return "end", LINGER_S
        if self.flow.write_paused:
            return ("reader", self._num_resumed), UNREAD_S
        if state is h11.SEND_BODY:
            return ("body", self.cycle), BODY_S
        if state is h11.IDLE:
            return ("head", self.cycle, has_begun), HEAD_S if has_begun or not self.cycle else KEEP_ALIVE_S
        return None, 0.0

    def give_up(self) -> None:
        """Close the connection of a client that has delayed the server for too long."""
        half = self.conn.their_state is h11.SEND_BODY or self.conn.trailing_data[0]
        if half and not (self._refused or self.transport.is_closing() or self.flow.write_paused):
            self.refuse(408)
        else:
            self.transport.abort()

    def refuse(self, status: int) -> None:
        """Answer with this status, unless a response has started, and stop reading."""
        self._refused = True
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(error_response(status, TEXTS[status]))
        if self.cycle:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def send_400_response(self, msg: str) -> None:
        """Refuse a request. uvicorn calls this while it handles the exception of its parser."""
        hint = getattr(sys.exception(), "error_status_hint", 400)
        self.refuse(hint if hint in TEXTS else 400)

    def data_received(self, data: bytes) -> None:
        if not self._refused:
            super().data_received(data)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._num_resumed += 1

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # uvicorn leaves it if the connection broke


class Watch:
    """A regular check of all connections. It closes connections that delay the server for too long. Beyond `num_places`
    it closes the oldest waiting ones, starting with the client that has most."""

    def __init__(self, connections: Collection[Any], num_places: int) -> None:
        self.num_places = num_places
        self.connections: Collection[Connection] = connections
        self._waits: dict[Connection, tuple[object, float]] = {}  # the awaited thing, and its start
        self._noticed_s = -NOTICE_S

    def start(self) -> None:
        """Check now, and again every `LOOK_S` on the running event loop."""
        asyncio.get_running_loop().call_later(LOOK_S, self.start)  # first, so that no error stops it
        self.look(time.monotonic())

    def look(self, now: float) -> None:
        """Close the connections that must be closed at this time."""
        waits = {}
        for connection in list(self.connections):
            awaited, limit_s = connection.awaited()
            known, since = self._waits.get(connection, (None, now))
            since = since if known == awaited else now
            if awaited is not None:
                waits[connection] = awaited, since
            if awaited is not None and now - since >= limit_s:
                connection.give_up()
        self._waits = waits
        surplus = len(self.connections) - self.num_places
        if surplus > 0:
            self._notice(now)
            num_of = Counter(connection.network for connection in waits)
            first = sorted(waits, key=lambda connection: (-num_of[connection.network], waits[connection][1]))
            for connection in first[:surplus]:
                connection.transport.abort()

    def _notice(self, now: float) -> None:
        if now - self._noticed_s >= NOTICE_S:
            self._noticed_s = now
            LOG.warning(
                "slimrl: the server's %d places for connections are taken; the oldest that wait for their client are "
                "closed. A larger `ulimit -n` may allow more.",
                self.num_places,
            )


def error_response(status: int, text: str) -> bytes:
    """Return a whole response of plain text, which closes the connection."""
    body = f"{text}\n".encode()
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


def network_of(host: str) -> str:
    """Return the address of a client; in IPv6 its /64 network, because it has all addresses there."""
    return ":".join(ipaddress.IPv6Address(host).exploded.split(":")[:4]) if ":" in host else host
