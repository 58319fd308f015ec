"""Reads growing files of lines, each time from the last position. Does not depend on rollouts or metrics.

An incomplete last line waits for its rest. A file that is shorter than before, or another file, as after a resume, is
read again from its start.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar

from slimrl.errors import UserError
from slimrl.io.regular_file import open_regular

PART_BYTES = 4 * 2**20  # read in one go
MAX_LINE_BYTES = 256 * 2**20  # a longer line is passed on as an empty one
MARK_BYTES = 256
Value = TypeVar("Value")
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """The position up to which a file was read. `mark` has the last bytes before `end`, to recognise the file again."""

    inode: int = 0
    mtime_ns: int = 0
    end: int = 0
    mark: bytes = b""


@dataclass(frozen=True, slots=True)
class Part:
    """Whole lines of a file, each with the offset of its first byte, and the place after them. If `is_first`, they are
    the first lines of the file, and everything that was read of it before is void."""

    lines: Sequence[tuple[int, bytes]]
    place: Place
    is_first: bool


def new_parts(path: Path, place: Place) -> Iterator[Part]:
    """Yield the whole lines after a place, some megabytes at a time. A file that is new, changed or deleted has a first
    part even without lines. Raises UserError if it cannot be read."""
    try:
        status = path.stat()
    except OSError:
        if place != Place():
            yield Part((), Place(), is_first=True)
        return
    inode = status.st_ino % 2**63  # SQLite's integers are too small for all 64 bits
    if (inode, status.st_mtime_ns, status.st_size) == (place.inode, place.mtime_ns, place.end):
        return
    with open_regular(path) as file:
        file.seek(place.end - len(place.mark))
        is_same = place.inode == inode and status.st_size > place.end and file.read(len(place.mark)) == place.mark
        is_first = not is_same
        begin, mark = (0, b"") if is_first else (place.end, place.mark)
        file.seek(begin)
        rest, num_skipped = b"", 0
        while chunk := file.read(PART_BYTES):
            rest += chunk
            if cut := rest.rfind(b"\n") + 1:
                lines = []
                for raw in rest[: cut - 1].split(b"\n"):
                    lines.append((begin, b"" if num_skipped else raw))
                    begin += num_skipped + len(raw) + 1
                    num_skipped = 0
                mark = (mark + rest[:cut])[-MARK_BYTES:]
                mtime_ns = os.fstat(file.fileno()).st_mtime_ns  # it may have grown since
                yield Part(lines, Place(inode, mtime_ns, begin, mark), is_first)
                rest, is_first = rest[cut:], False
            elif len(rest) > MAX_LINE_BYTES:
                mark = (mark + rest)[-MARK_BYTES:]
                rest, num_skipped = b"", num_skipped + len(rest)
        if is_first:
            yield Part((), Place(inode, status.st_mtime_ns), is_first=True)


class Growing(Generic[Value]):
    """A value that is made from the JSON objects of a growing file. Other lines are ignored.

    `make` returns the value of an empty file, and `add` adds an object to a value.
    """

    def __init__(self, path: Path, make: Callable[[], Value], add: Callable[[Value, Json], object]) -> None:
        self._path, self._make, self._add = path, make, add
        self._place, self._value = Place(), make()
        self._lock = Lock()

    @contextmanager
    def read(self) -> Iterator[Value]:
        """Yield the value of all objects so far; it does not change inside the `with` block."""
        with self._lock:
            with suppress(OSError, UserError):
                for part in new_parts(self._path, self._place):
                    if part.is_first:
                        self._value = self._make()
                    for _, line in part.lines:
                        if (record := _object(line)) is not None:
                            self._add(self._value, record)
                    self._place = part.place
            yield self._value


def _object(line: bytes) -> Json | None:
    """Parse a JSON object; None if the line is not one."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
