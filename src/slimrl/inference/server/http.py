"""Runs an HTTP server on a thread of its own. Knows nothing of the application that is served.

With a separate thread the main thread is free to wait for signals, and a test can run a server in its own process.
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
    """A listening socket; port 0 chooses a free port. Raises UserError if the address cannot be used."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UserError(f"host = {host} is no address of this machine: {error.strerror}. Set another --host.") from None
    try:
        # A restarted server may take the port while old connections are in TIME_WAIT.
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
    """Serves an application on a listening socket from `start` until `stop`."""

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
        # A daemon, so that a server that was not stopped does not keep the process alive.
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    @property
    def address(self) -> str:
        """The URL of the server."""
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Accept no more requests, give running ones `grace_s` seconds, and end."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def wait(self, timeout_s: float) -> bool:
        """Wait for at most this long, and return whether the server is still running."""
        self._thread.join(timeout_s)
        return self._thread.is_alive()

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))
