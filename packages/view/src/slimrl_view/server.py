"""The viewer's HTTP server: the page, and the answers of `api.py` as JSON. Needs the standard library alone.

It answers GET and HEAD, and only requests of this machine's programs or of its own page, as `io/http_access.py` tells.
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
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
}
SAFETY = {
    "Content-Security-Policy": "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
MAX_TARGET = 16 * 2**10  # bytes of a path with its query
MAX_FIELDS = 32
IDLE_S = 60.0
MAX_CONNECTIONS = 64
ROOM_S = 1.0  # for a connection that was ended to leave its place
TRIED_PORTS = 20


def static_files() -> dict[str, Path]:
    """The files of the page by their paths in an address. Others are not served."""
    found = {f"/{path.relative_to(STATIC).as_posix()}": path for path in STATIC.rglob("*") if path.suffix in TYPES}
    return {**found, "/": STATIC / "index.html"}


class Server(ThreadingHTTPServer):
    """A server that is bound to its port, and answers once `serve_forever` is called."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, family: socket.AddressFamily, address: Any, api: Api, access: Access) -> None:
        self.address_family = family
        self.api = api
        self.access = access
        self.login = Login(access.key, access.variable)
        self.files = static_files()
        self._places = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._waiting: dict[Any, None] = {}  # connections that wait for their client, the longest first
        self._lock = threading.Lock()
        super().__init__(address, Handler)

    @property
    def url(self) -> str:
        """The address of the page on this machine."""
        name = str(self.server_address[0])
        return self._url({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(name, name))

    @property
    def url_elsewhere(self) -> str:
        """The address of the page on other machines, if they know this one's name."""
        return self._url(socket.gethostname()) if self.server_address[0] in ("0.0.0.0", "::") else self.url

    def _url(self, name: str) -> str:
        return f"http://{f'[{name}]' if ':' in name else name}:{self.server_address[1]}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a new connection. Where all places are taken, the one that has waited longest for its client ends: a
        client that sends its request drop by drop, or does not read the answer, keeps nobody out."""
        if not self._places.acquire(blocking=False):
            self._end_longest_wait()
            if not self._places.acquire(timeout=ROOM_S):
                self.shutdown_request(request)
                return
        super().process_request(request, client_address)

    def begin_wait(self, request: Any) -> None:
        """Count a connection as one that waits for its client, to send a request or to read an answer."""
        with self._lock:
            self._waiting[request] = None

    def end_wait(self, request: Any) -> None:
        """Count a connection as one that is answered, or is over."""
        with self._lock:
            self._waiting.pop(request, None)

    def _end_longest_wait(self) -> None:
        with self._lock:
            request = next(iter(self._waiting), None)
            self._waiting.pop(request, None)
        if request is not None:
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.end_wait(request)
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves early is none of the user's business; anything else is a bug, and shown."""
        if not isinstance(_current_error(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def bind(host: str, port: int, api: Api, access: Access, is_chosen: bool) -> Server:
    """A server on the port, or on the next free one if the user has not chosen it. Raises UserError without one."""
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
    if is_chosen:
        raise UserError(f"port {port} is taken by another program. Give another --port, or 0 for a free one.")
    raise UserError(f"the ports {port} to {number} are taken by other programs. Give a free one with --port, or 0.")


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version = "slimrl"
    sys_version = ""
    timeout = IDLE_S

    def handle_one_request(self) -> None:
        """Wait for a request and answer it."""
        self.server.begin_wait(self.connection)
        super().handle_one_request()

    def do_GET(self) -> None:
        """Answer with the page, one of its files, or JSON."""
        self.server.end_wait(self.connection)
        target = urlsplit(self.path)
        if len(self.path) > MAX_TARGET:
            self.send_error(HTTPStatus.REQUEST_URI_TOO_LONG)
        elif self._logs_in(target):
            pass
        elif refusal := self.server.access.refusal(self.client_address[0], self._headers()):
            self._refuse(refusal, target.query)
        elif target.path in self.server.files:
            path = self.server.files[target.path]
            self._send(HTTPStatus.OK, path.read_bytes(), TYPES[path.suffix])
        elif target.path.startswith(PREFIX):
            self._answer(target.path, target.query)
        else:
            self._send_json(HTTPStatus.NOT_FOUND, {"error": "There is no such page."})

    do_HEAD = do_GET

    def _refuse_method(self) -> None:
        self.close_connection = True  # its body is not read
        self._send_json(HTTPStatus.METHOD_NOT_ALLOWED, {"error": "Only GET is answered."}, {"Allow": "GET, HEAD"})

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = _refuse_method

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that is no HTTP, too large, or of an unknown method."""
        self.close_connection = True
        self._send_json(code, {"error": message or HTTPStatus(code).phrase})

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing of requests."""

    def _answer(self, path: str, query: str) -> None:
        try:
            fields = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_FIELDS))
        except ValueError:
            self._send_json(HTTPStatus.BAD_REQUEST, {"error": f"The query has more than {MAX_FIELDS} fields."})
            return
        status = HTTPStatus.OK
        try:
            value = self.server.api.answer(path, fields)
        except Missing as error:
            status, value = HTTPStatus.NOT_FOUND, {"error": _sentence(error)}
        except UserError as error:
            status, value = HTTPStatus.BAD_REQUEST, {"error": _sentence(error)}
        except sqlite3.OperationalError as error:
            status, value = HTTPStatus.SERVICE_UNAVAILABLE, {"error": f"The index cannot be read: {error}."}
        self._send_json(status, value)

    def _logs_in(self, target: SplitResult) -> bool:
        """Whether the address logs the browser in; then a cookie does from now on, and the key leaves the address."""
        cookie = self.server.login.cookie(target.query) if target.path == "/" else ""
        if cookie:
            self._send(HTTPStatus.SEE_OTHER, b"", "text/plain", {"Location": "/", "Set-Cookie": cookie})
        return bool(cookie)

    def _refuse(self, refusal: Refusal, query: str) -> None:
        if refusal.status == HTTPStatus.UNAUTHORIZED and wants_page(self._headers()):
            self._send(refusal.status, self.server.login.page(query), TYPES[".html"], refusal.headers)
        else:
            self._send_json(refusal.status, {"error": refusal.message}, refusal.headers)

    def _headers(self) -> dict[str, str]:
        """The headers with names in lower case. A browser that has logged in counts as one that sends the key."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        login = self.server.login
        if login.is_known(headers.get("cookie", "")):
            headers["authorization"] = f"Bearer {login.key}"
        return headers

    def _send_json(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        # ASCII, so that half of a surrogate pair, which UTF-8 lacks, arrives as it is.
        body = json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
        self._send(status, body, "application/json", headers)

    def _send(self, status: int, body: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
        self.server.begin_wait(self.connection)
        self.send_response(status)
        lines = {"Content-Type": kind, "Content-Length": str(len(body)), **SAFETY, **(headers or {})}
        for name, value in lines.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _sentence(error: UserError) -> str:
    text = str(error)
    return text[:1].upper() + text[1:]


def _current_error() -> BaseException | None:
    return sys.exception()
