"""The viewer's HTTP server: the page, and the answers of `api.py` as JSON. Needs only the standard library.

It answers GET and HEAD, and only requests from this machine's programs or from its own page (`io/http_access.py`).
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
MAX_TARGET = 16 * 2**10  # bytes of a path with its query
MAX_FIELDS = 32
IDLE_S = 60.0
MAX_CONNECTIONS = 64
FULL = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
LOGIN = {"WWW-Authenticate": 'Basic realm="slimrl view", charset="UTF-8"'}  # a browser then asks for the key
TRIED_PORTS = 20
HERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # address of this machine, for a server that listens on all addresses


class Server(ThreadingHTTPServer):
    """A server that is bound to its port, and answers once `serve_forever` is called."""

    request_queue_size = 64

    def __init__(self, family: socket.AddressFamily, address: Any, api: Api, access: Access) -> None:
        self.address_family = family
        self.api, self.access = api, access
        # The files of the page, keyed by their paths in a URL. Other files are not served.
        self.files = {f"/{path.name}": path for path in STATIC.iterdir() if path.suffix in TYPES}
        self.files["/"] = STATIC / "index.html"
        self._places = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(address, Handler)

    def url(self, elsewhere: bool = False) -> str:
        """Return the page's URL for this machine, or with `elsewhere` for other machines that know this machine's
        name."""
        name = str(self.server_address[0])
        if name in HERE:
            name = socket.gethostname() if elsewhere else HERE[name]
        return f"http://{f'[{name}]' if ':' in name else name}:{self.server_address[1]}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a new connection on its own thread, or with 503 if there are already `MAX_CONNECTIONS` connections."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        with suppress(OSError):
            request.sendall(FULL)
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that leaves early. Any other error is a bug, and is printed."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def bind(host: str, port: int, api: Api, access: Access, is_chosen: bool) -> Server:
    """Return a server on the port, or on the next free port unless `is_chosen`. Raises UserError without a free
    port."""
    if not 0 <= port < 65536:
        raise UserError(f"cannot listen on {host}:{port}: a port is a number from 0 to 65535. Give another --port.")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise UserError(f"cannot listen on {host}:{port}: {error.strerror}. Give another --host or --port.") from None
    for number in range(port, min(65536, port + (1 if is_chosen or port == 0 else TRIED_PORTS))):
        try:
            return Server(family, (address[0], number, *address[2:]), api, access)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise UserError(f"cannot listen on {host}:{number}: {error.strerror}. Give another --port.") from None
    taken = f"port {port} is" if is_chosen else f"the ports {port} to {number} are"
    raise UserError(f"{taken} taken by other programs. Give another --port, or 0 for a free one.")


class Handler(BaseHTTPRequestHandler):
    """Answers one request of a connection."""

    server: Server
    server_version = "slimrl"
    sys_version = ""
    timeout = IDLE_S

    def do_GET(self) -> None:
        """Answer with the page, one of its files, or JSON."""
        target = urlsplit(self.path)
        if len(self.path) > MAX_TARGET:
            self.send_error(HTTPStatus.REQUEST_URI_TOO_LONG)
        elif refusal := self.server.access.refusal(self.client_address[0], self._headers()):
            more = LOGIN if refusal.status == HTTPStatus.UNAUTHORIZED else {}
            self._send_error(refusal.status, refusal.message, refusal.headers | more)
        elif path := self.server.files.get(target.path):
            self._send(HTTPStatus.OK, path.read_bytes(), TYPES[path.suffix])
        elif target.path.startswith(PREFIX):
            self._answer(target.path, target.query)
        else:
            self._send_error(HTTPStatus.NOT_FOUND, "There is no such page.")

    do_HEAD = do_GET

    def _refuse_method(self) -> None:
        self._send_error(HTTPStatus.METHOD_NOT_ALLOWED, "Only GET is answered.", {"Allow": "GET, HEAD"})

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = _refuse_method

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that is not HTTP, too large, or of an unknown method."""
        self._send_error(code, message or HTTPStatus(code).phrase)

    def log_message(self, format: str, *args: Any) -> None:
        """Log no requests."""

    def _answer(self, path: str, query: str) -> None:
        try:
            fields = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_FIELDS))
        except ValueError:
            self._send_error(HTTPStatus.BAD_REQUEST, f"The query has more than {MAX_FIELDS} fields.")
            return
        try:
            self._send_json(HTTPStatus.OK, self.server.api.answer(path, fields))
        except UserError as error:
            status = HTTPStatus.NOT_FOUND if isinstance(error, Missing) else HTTPStatus.BAD_REQUEST
            self._send_error(status, f"{str(error)[:1].upper()}{str(error)[1:]}")
        except sqlite3.DatabaseError as error:
            sentence = (
                f"The index cannot be read: {error}. If it stays so, delete RUN/.view and start the viewer again."
            )
            self._send_error(HTTPStatus.SERVICE_UNAVAILABLE, sentence)

    def _headers(self) -> dict[str, str]:
        """Return the headers with names in lower case. A browser sends the key as a password; convert it to a bearer
        token."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "basic":
            with suppress(ValueError):
                headers["authorization"] = f"Bearer {b64decode(credentials).decode().partition(':')[2]}"
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
