"""The viewer's HTTP server: the page, and the answers of `api.py` as JSON. Needs only the standard library.

It answers GET and HEAD, and only requests from this machine's programs or from its own page (`io/http_access.py`). With
a key, the clients must know the key.
"""

import errno
import json
import socket
import sqlite3
import sys
import threading
from base64 import b64decode
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from slimrl.errors import UserError
from slimrl.io.http_access import Access
from slimrl_view.api import PREFIX, Api
from slimrl_view.queries import Missing

STATIC = Path(__file__).parent / "static"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
}
SAFETY = {
    "Content-Security-Policy": "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Connection": "close",
}
IDLE_S = 60.0
MAX_CONNECTIONS = 64
ROOM_S = 1.0  # seconds to wait until a closed connection frees its place
TRIED_PORTS = 20
HOST = "127.0.0.1"
CHALLENGE = {"WWW-Authenticate": 'Basic realm="slimrl view", charset="UTF-8"'}  # a browser then asks for a password


class Server(ThreadingHTTPServer):
    """An HTTP server on a port of the loopback address. It answers requests after `serve_forever` is called."""

    request_queue_size = 64

    def __init__(self, port: int, api: Api, access: Access) -> None:
        self.api, self.access = api, access
        # The files of the page by their paths in an address. Other files are not served.
        self.files = {f"/{path.name}": path for path in STATIC.iterdir() if path.suffix in TYPES}
        self.files["/"] = STATIC / "index.html"
        self._places = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._open: dict[Any, None] = {}  # connections, the oldest first
        super().__init__((HOST, port), Handler)

    @property
    def url(self) -> str:
        """The page's URL."""
        return f"http://{HOST}:{self.server_port}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a new connection. If `MAX_CONNECTIONS` are open, close the oldest one first, so that slow clients
        cannot block others."""
        if not self._places.acquire(blocking=False):
            for oldest in [*self._open][:1]:
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
            if not self._places.acquire(timeout=ROOM_S):
                self.shutdown_request(request)
                return
        self._open[request] = None
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            del self._open[request]
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore an error of a client that closes the connection early. Any other error is a bug, and is printed."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def bind(port: int, api: Api, access: Access, is_chosen: bool) -> Server:
    """Return a server on `port`. If the port is taken and the user has not chosen it (`is_chosen`), try the next ports.
    Raises UserError if no port is free."""
    for number in range(port, min(65536, port + (1 if is_chosen or port == 0 else TRIED_PORTS))):
        try:
            return Server(number, api, access)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise UserError(f"cannot listen on {HOST}:{number}: {error.strerror}. Give another --port.") from None
    taken = f"port {port} is" if is_chosen else f"the ports {port} to {number} are"
    raise UserError(f"{taken} taken, perhaps by another viewer. Give another --port.")


class Handler(BaseHTTPRequestHandler):
    """Answers one request of a connection."""

    server: Server
    server_version = "slimrl"
    sys_version = ""
    timeout = IDLE_S

    def do_GET(self) -> None:
        """Answer with the page, one of its files, or JSON."""
        target = urlsplit(self.path)
        if refusal := self.server.access.refusal(self.client_address[0], self._headers()):
            self._send_error(refusal.status, refusal.message, CHALLENGE if refusal.status == 401 else refusal.headers)
        elif path := self.server.files.get(target.path):
            self._send(HTTPStatus.OK, path.read_bytes(), TYPES[path.suffix])
        elif target.path.startswith(PREFIX):
            self._answer(target.path, target.query)
        else:
            self._send_error(HTTPStatus.NOT_FOUND, "There is no such page.")

    do_HEAD = do_GET

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that is not HTTP, too large, or of an unknown method."""
        self._send_error(code, message or HTTPStatus(code).phrase)

    def log_message(self, format: str, *args: Any) -> None:
        """No-op: requests are not logged."""

    def _answer(self, path: str, query: str) -> None:
        try:
            self._send_json(HTTPStatus.OK, self.server.api.answer(path, dict(parse_qsl(query, keep_blank_values=True))))
        except UserError as error:
            status = HTTPStatus.NOT_FOUND if isinstance(error, Missing) else HTTPStatus.BAD_REQUEST
            self._send_error(status, f"{str(error)[:1].upper()}{str(error)[1:]}")
        except sqlite3.DatabaseError as error:
            sentence = f"The index cannot be read: {error}. If this persists, start the viewer again."
            self._send_error(HTTPStatus.SERVICE_UNAVAILABLE, sentence)

    def _headers(self) -> dict[str, str]:
        """Return the headers with names in lower case. A browser sends the key as the password of the scheme Basic.
        Such a header is returned in the scheme Bearer, in which other programs send the key."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        scheme, _, encoded = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "basic":
            with suppress(ValueError):  # malformed, so the header stays as it is and is refused
                headers["authorization"] = f"Bearer {b64decode(encoded).decode().partition(':')[2]}"
        return headers

    def _send_error(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        self._send_json(status, {"error": sentence}, headers)

    def _send_json(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        # The JSON is in ASCII. So half of a surrogate pair arrives unchanged, although UTF-8 cannot encode it.
        body = json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
        self._send(status, body, "application/json", headers)

    def _send(self, status: int, body: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        lines = {"Content-Type": kind, "Content-Length": str(len(body)), **SAFETY, **(headers or {})}
        for name, value in lines.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
