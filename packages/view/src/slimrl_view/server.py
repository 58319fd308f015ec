"""The viewer's HTTP server: the page, and the answers of `api.py` as JSON. Needs only the standard library.

It answers GET and HEAD, and only requests from this machine's programs or from its own page (`io/http_access.py`).
"""

import errno
import json
import socket
import sqlite3
import sys
import threading
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

from slimrl.errors import UserError
from slimrl.io.http_access import Access, Refusal
from slimrl_view.api import PREFIX, Api
from slimrl_view.login import Login, wants_page
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
ROOM_S = 1.0  # seconds to wait until a closed connection frees its place
TRIED_PORTS = 20
HERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # address of this machine, for a server that listens on all addresses


class Server(ThreadingHTTPServer):
    """An HTTP server that is bound to a port. It answers requests after `serve_forever` is called."""

    request_queue_size = 64

    def __init__(self, family: socket.AddressFamily, address: Any, api: Api, access: Access) -> None:
        self.address_family = family
        self.api, self.access = api, access
        self.login = Login(access.key, access.variable)
        # The files of the page by their paths in an address. Other files are not served.
        self.files = {f"/{path.name}": path for path in STATIC.iterdir() if path.suffix in TYPES}
        self.files["/"] = STATIC / "index.html"
        self._places = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._open: dict[Any, None] = {}  # connections, the oldest first
        super().__init__(address, Handler)

    def url(self, elsewhere: bool = False) -> str:
        """Return the page's URL for this machine. With `elsewhere`, return the URL for other machines: it has this
        machine's name if the server listens on all addresses."""
        name = str(self.server_address[0])
        if name in HERE:
            name = socket.gethostname() if elsewhere else HERE[name]
        return f"http://{f'[{name}]' if ':' in name else name}:{self.server_address[1]}/"

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


def bind(host: str, port: int, api: Api, access: Access, is_chosen: bool) -> Server:
    """Return a server on `port`. If the port is taken and the user has not chosen it (`is_chosen`), try the next ports.
    Raises UserError if no port is free."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise UserError(
            f"--host {host} is no address of this machine: {error.strerror}. Leave it at 127.0.0.1."
        ) from None
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
        elif self._logs_in(target):
            pass
        elif refusal := self.server.access.refusal(self.client_address[0], self._headers()):
            self._refuse(refusal, target.query)
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
        """No-op: requests are not logged."""

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

    def _logs_in(self, target: SplitResult) -> bool:
        """Return True if the address has the right key or a valid ticket. The answer, sent here, then sets the cookie
        and redirects to `/`, so that the key disappears from the address bar."""
        cookie = self.server.login.cookie(target.query) if target.path == "/" else ""
        if cookie:
            self._send(HTTPStatus.SEE_OTHER, b"", "text/plain", {"Location": "/", "Set-Cookie": cookie})
        return bool(cookie)

    def _refuse(self, refusal: Refusal, query: str) -> None:
        if refusal.status == HTTPStatus.UNAUTHORIZED and wants_page(self._headers()):
            self._send(refusal.status, self.server.login.page(query), TYPES[".html"], refusal.headers)
        else:
            self._send_error(refusal.status, refusal.message, refusal.headers)

    def _headers(self) -> dict[str, str]:
        """Return the headers with names in lower case. If the browser has logged in, add the key, as if the browser had
        sent it."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        login = self.server.login
        if login.is_known(headers.get("cookie", "")):
            headers["authorization"] = f"Bearer {login.key}"
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
