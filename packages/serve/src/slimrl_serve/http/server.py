"""Runs an HTTP server, in this thread or on its own thread, with limits on its connections. It does not depend on the
served application. Needs the extra `server`.
"""

import asyncio
import logging
import socket
import threading
import time
from functools import partial

import uvicorn
from starlette.types import ASGIApp

from slimrl.errors import UserError
from slimrl.io.descriptors import allow_descriptors
from slimrl_serve.http.connection import KEEP_ALIVE_S, MAX_HEAD_BYTES, Connection

LOG = logging.getLogger(__name__)
MAX_CONNECTIONS = 4096
FULL_NOTICE_S = 60.0  # seconds between two log lines about refused connections
RESERVED_DESCRIPTORS = 64  # for files, pipes and everything else except connections, in any server
BACKLOG = 2048
END_S = 2.0  # seconds for cancelled requests to stop


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
    The limit on connections leaves file descriptors for them."""

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

    def run(self) -> None:
        """Serve in this thread, until a signal in the main thread, or `stop`."""
        asyncio.run(self._serve())

    def start(self) -> None:
        """Serve on a separate thread, so that the main thread is free to wait for signals."""
        self._thread.start()

    def stop(self) -> None:
        """Accept no more requests, give running ones `grace_s` seconds, and stop. Requests that cannot be cancelled
        stop with the process."""
        self._server.should_exit = True
        self._thread.join(self._grace_s + END_S)
        self._socket.close()

    def wait(self, timeout_s: float) -> bool:
        """Wait until the server stops, at most `timeout_s` seconds. Return True if it is still running."""
        self._thread.join(timeout_s)
        return self._thread.is_alive()

    def _report_full(self) -> None:
        if time.monotonic() >= self._full_notice_at + FULL_NOTICE_S:
            self._full_notice_at = time.monotonic()
            LOG.warning("all %d connections are taken; new ones are answered with 503", self._num_places)

    async def _serve(self) -> None:
        for name in ("asyncio", "uvicorn.error"):
            logging.getLogger(name).addFilter(_is_news)
        await self._server.serve(sockets=[self._socket])


def _is_news(record: logging.LogRecord) -> bool:
    """Return False for two records: asyncio's warning at each write to a client that has left, and the traceback of a
    request that is cancelled while the server stops."""
    was_broken_off = record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError)
    return not was_broken_off and record.msg != "socket.send() raised exception."
