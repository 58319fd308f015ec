"""Runs an HTTP server in this thread or on a separate thread. Limits the number of connections, and the time for which
a client may delay the server. Needs the extra `server`.

uvicorn itself limits the size of heads.
"""

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from slimrl.errors import UserError
from slimrl.io.descriptors import allow_descriptors
from slimrl_serve.http.guard import MAX_HEAD_BYTES

LOG = logging.getLogger(__name__)
MAX_CONNECTIONS = 4096
FULL_NOTICE_S = 60.0  # seconds between two log lines about refused connections
RESERVED_DESCRIPTORS = 64  # for files, pipes and everything else except connections, in any server
BACKLOG = 2048
END_S = 2.0  # seconds for cancelled requests to stop
HEAD_S = 10.0  # seconds for a whole head, counted from the connection or from the head's first byte
BODY_S = 60.0  # seconds for a whole body
# Longer than clients keep an idle connection (httpx: 5 s): if both sides close at the same moment, a request that is
# just being sent is lost.
KEEP_ALIVE_S = 60.0
UNREAD_S = 60.0  # seconds for a client to read the sent part of a response, before the next part is written
LOOK_S = 0.1  # seconds between two checks of a connection
BAD = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Connection(H11Protocol):
    """uvicorn's HTTP protocol with two changes. A connection whose client delays the server for too long is closed. If
    there are `limit_concurrency` connections, uvicorn would refuse the requests on all of them; here, only a new
    connection is answered with 503 and closed, and `on_full` is called."""

    def __init__(self, on_full: Callable[[], None], **settings: Any) -> None:
        super().__init__(**settings)
        self._on_full = on_full
        self._num_resumed = 0
        self._present: tuple[object, float] = None, 0.0  # the current wait, and its start
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
        """Return an identifier of the current wait for the client, and the allowed seconds. Without a wait, return None
        and 0."""
        if self.flow.write_paused or self.transport.is_closing():
            return ("reader", self._num_resumed), UNREAD_S
        if self.conn.their_state is h11.SEND_BODY:
            return ("body", self.cycle), BODY_S
        if self.conn.their_state is h11.IDLE:
            has_begun = bool(self.conn.trailing_data[0])
            return ("head", self.cycle, has_begun), HEAD_S if has_begun or not self.cycle else KEEP_ALIVE_S
        return None, 0.0

    def _look(self) -> None:
        """Close the connection if the current wait has exceeded its limit. Schedule the next check."""
        awaited, limit_s = self._find_wait()
        if awaited != self._present[0]:
            self._present = awaited, time.monotonic()
        elif awaited is not None and time.monotonic() - self._present[1] >= limit_s:
            self.transport.abort()
        self._timer = self.loop.call_later(LOOK_S, self._look)

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that the parser refuses. Afterwards the application must not answer the request of which they
        are a part."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(BAD)  # uvicorn's own answer has a text, which fails for HEAD
        self.transport.close()
        if self.cycle:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._num_resumed += 1

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._timer:
            self._timer.cancel()


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 chooses a free port. Raises UserError if the address cannot be used."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()  # `::` also serves IPv4
        return socket.create_server((host, address[1]), family=family, backlog=BACKLOG, dualstack_ipv6=both)
    except OSError as error:
        why = error.strerror or error
        raise UserError(f"Cannot listen on {host}:{port}: {why}. Set another --host or --port.") from None


class HttpServer:
    """Serves an application on a listening socket. `num_reserved` is the number of files that the application opens.
    The limit on connections leaves file descriptors for these files. `start` serves on a separate thread, so that the
    main thread is free to wait for signals."""

    def __init__(self, app: ASGIApp, listening: socket.socket, grace_s: int, num_reserved: int = 0) -> None:
        reserved = RESERVED_DESCRIPTORS + num_reserved
        self._num_places = min(MAX_CONNECTIONS, max(8, allow_descriptors(MAX_CONNECTIONS + reserved) - reserved))
        self._full_notice_at = -FULL_NOTICE_S
        config = uvicorn.Config(
            app,
            # uvicorn warns about every request that it cannot parse, and a client must not fill the log.
            log_level="error",
            access_log=False,
            server_header=False,
            lifespan="on",
            ws="none",
            # h11, although httptools is faster: only h11 limits heads, and it is always installed.
            http=partial(Connection, self._report_full),  # type: ignore[arg-type]  # it is called like a class
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            backlog=BACKLOG,
            limit_concurrency=self._num_places + 1,
            timeout_keep_alive=int(KEEP_ALIVE_S),
            timeout_graceful_shutdown=grace_s,
        )
        self._server = uvicorn.Server(config)
        self._socket, self._grace_s = listening, grace_s
        # A daemon, so that a server that was not stopped does not keep the process alive.
        self._thread = threading.Thread(target=self.run, name="http", daemon=True)

    @property
    def address(self) -> str:
        """The URL of the server."""
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def is_alive(self) -> bool:
        """True if the separate thread still serves."""
        return self._thread.is_alive()

    def run(self) -> None:
        """Serve in this thread until `stop` is called, or a signal arrives in the main thread."""
        for name in ("asyncio", "uvicorn.error"):
            logging.getLogger(name).addFilter(_is_news)
        asyncio.run(self._server.serve(sockets=[self._socket]))

    def start(self) -> None:
        """Serve on a separate thread."""
        self._thread.start()

    def stop(self) -> None:
        """Accept no more requests, give running ones `grace_s` seconds, and stop. Requests that cannot be cancelled
        stop with the process."""
        self._server.should_exit = True
        self._thread.join(self._grace_s + END_S)
        self._socket.close()

    def _report_full(self) -> None:
        if time.monotonic() >= self._full_notice_at + FULL_NOTICE_S:
            self._full_notice_at = time.monotonic()
            LOG.warning("all %d connections are taken; new ones are answered with 503", self._num_places)


def _is_news(record: logging.LogRecord) -> bool:
    """Return True if the log must show a record. The log omits asyncio's warning at each write to a client that has
    left, and the traceback of a request that is cancelled while the server stops."""
    was_broken_off = record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError)
    return not was_broken_off and record.msg != "socket.send() raised exception."
