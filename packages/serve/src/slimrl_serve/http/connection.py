"""One connection of an HTTP server, and all of them: bounds what a client may cost before a route has seen its request.

A client gets a place, a head of bounded size, and a time for each thing that the server waits for. When all places are
taken, those that keep the server waiting lose theirs first. Knows nothing of the application.
"""

import asyncio
import ipaddress
import sys
from collections import Counter
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_HEAD_BYTES = 32 * 2**10
HEAD_S = 10.0  # for a whole head, from the connection or from its first byte on
BODY_S = 60.0  # for a whole body
# Longer than clients keep an idle connection (httpx: 5 s): if both ends close at the same moment, a request that is
# just being sent is lost.
KEEP_ALIVE_S = 60.0
FIRST_S = 1.0  # for the first byte of a new connection, before others may take its place
RETRY_AFTER_S = 1
UNREAD_S = 60.0  # for a client to read what has been sent, before more of it is written
LINGER_S = 2.0  # after a refusal: closed at once, what is still arriving would reset the connection and lose it
READ_BYTES = 2**15  # parsed at a time: 256 KiB, asyncio's default, can hold 40,000 chunks of one byte
TEXTS = {
    400: "This is no HTTP/1.1 request that can be read: its head is malformed, or its body's length is unclear.",
    408: f"The request came too slowly: its head may take {HEAD_S:.0f} s, and its body {BODY_S:.0f} s.",
    431: f"The head of the request is larger than {MAX_HEAD_BYTES // 2**10} KiB.",
}


class Connection(H11Protocol):
    """uvicorn's protocol with a place among the connections, and a time for what is awaited of the client."""

    def __init__(self, connections: "Connections", **settings: Any) -> None:
        super().__init__(**settings)
        self._connections = connections
        self._awaited: object = None  # what `_timer` bounds
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._refused = False
        self.began_s = 0.0

    @property
    def keeps_waiting(self) -> bool:
        """Whether the server waits for the client: for the rest of a request, or for one that could have come."""
        if self.cycle:
            return bool(self.cycle.response_complete or self.cycle.more_body)
        return bool(self.conn.trailing_data[0]) or self.loop.time() >= self.began_s + FIRST_S

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self.began_s = self.loop.time()
        self._connections.add(self)
        transport.max_size = READ_BYTES  # type: ignore[attr-defined]  # of asyncio's own transports
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        for timer in (self._timer, self._unread):
            if timer:
                timer.cancel()
        self._unset_keepalive_if_required()  # uvicorn leaves it if the connection broke
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._refused:
            super().data_received(data)
            self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(UNREAD_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread:
            self._unread.cancel()

    def send_400_response(self, msg: str) -> None:
        """Refuse what uvicorn could not parse; it calls this while it handles the parser's exception."""
        hint = getattr(sys.exception(), "error_status_hint", 400)
        self.refuse(hint if hint in TEXTS else 400)

    def refuse(self, status: int) -> None:
        """End the connection with this status, or without one if a response has begun."""
        self._refused = True
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(error_response(status, TEXTS[status]))
        if self.cycle:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._set_timer(LINGER_S, self.transport.abort)

    def _watch(self) -> None:
        """Bound the time for what is awaited of the client now, from the moment when it began to be awaited."""
        if self._refused:
            return
        state, has_begun = self.conn.their_state, bool(self.conn.trailing_data[0])
        seconds = 0.0
        if state is h11.SEND_BODY:
            seconds = BODY_S
        elif state is h11.IDLE:
            seconds = HEAD_S if has_begun or not self.cycle else KEEP_ALIVE_S
        awaited = (state, has_begun and state is h11.IDLE, self.cycle) if seconds else None
        if awaited != self._awaited:
            self._awaited = awaited
            self._set_timer(seconds, self._give_up if awaited else None)

    def _give_up(self) -> None:
        if self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            self.transport.close()  # it asks for nothing
        else:
            self.refuse(408)

    def _set_timer(self, seconds: float, act: Any) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, act) if act else None


class Connections:
    """The places of a server, and who has them. `num_taken` counts those too that are accepted but not yet made."""

    def __init__(self, num_places: int) -> None:
        self.num_places = num_places
        self.num_taken = 0
        self._open: dict[Connection, str] = {}  # the client of each, the oldest first

    @property
    def is_full(self) -> bool:
        return self.num_taken >= self.num_places

    def add(self, connection: Connection) -> None:
        self._open[connection] = _network(connection.client[0]) if connection.client else ""

    def discard(self, connection: Connection) -> None:
        if self._open.pop(connection, None) is not None:
            self.num_taken -= 1

    def make_room(self) -> bool:
        """Close the oldest connections that keep the server waiting, of the client that has the most of these; return
        whether there were any. Several at once: looking for them among thousands takes longer than closing them."""
        waiting = {connection: client for connection, client in self._open.items() if connection.keeps_waiting}
        if not waiting:
            return False
        [(most, _)] = Counter(waiting.values()).most_common(1)
        oldest = [connection for connection, client in waiting.items() if client == most]
        for connection in oldest[: 1 + self.num_places // 32]:
            connection.transport.abort()
            self.discard(connection)
        return True


def error_response(status: int, text: str) -> bytes:
    """A whole response of plain text, after which the connection ends."""
    body = f"{text}\n".encode()
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        head += f"Retry-After: {RETRY_AFTER_S}\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


def _network(host: str) -> str:
    """Whom an address stands for: in IPv6 whoever has one address has the 2^64 beside it, too."""
    if ":" not in host:
        return host
    return ":".join(ipaddress.IPv6Address(host).exploded.split(":")[:4])
