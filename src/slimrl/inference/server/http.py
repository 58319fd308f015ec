"""A socket, and the HTTP server on it in a thread of its own. Knows nothing of what is served.

The thread, so that the process's main thread is free to wait for signals and a test can run a server beside itself.
"""

import asyncio
import errno
import os
import socket
import threading

import uvicorn
from starlette.types import ASGIApp

from slimrl.errors import UserError


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises UserError if the address cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UserError(f"host = {host} is no address of this machine: {error.strerror}. Set another --host.") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(2048)
    except OSError as error:
        listening.close()
        known = {
            errno.EADDRINUSE: f"port {port} is taken by another program. Set another --port, or 0 for a free one",
            errno.EACCES: f"port {port} needs privileges. Set --port to one above 1023",
            errno.EADDRNOTAVAIL: f"host = {host} is no address of this machine. Set another --host",
        }
        why = known.get(error.errno or 0, os.strerror(error.errno or 0))
        raise UserError(f"Cannot listen on {host}:{port}: {why}.") from None
    return listening


class HttpServer:
    """Serves an app on a listening socket from `start` until `stop`."""

    def __init__(self, app: ASGIApp, listening: socket.socket, grace_s: int) -> None:
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="on",
            timeout_graceful_shutdown=grace_s,
        )
        self._server = uvicorn.Server(config)
        self._socket = listening
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    @property
    def address(self) -> str:
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Take no more requests, give those under way the time of grace, and end."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def wait(self, timeout_s: float) -> bool:
        """Whether the server still runs after at most this long."""
        self._thread.join(timeout_s)
        return self._thread.is_alive()

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))
