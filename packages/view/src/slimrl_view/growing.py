"""Reads growing files of JSON lines, each time from the last position. Does not depend on rollouts or metrics.

An incomplete last line waits for its rest. A file that is shorter than before, or another file, as after a resume, is
read again from its start.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar

from slimrl.errors import UserError
from slimrl.io.regular_file import open_regular

MARK_BYTES = 256  # the last bytes that were read, to recognise the file again
Value = TypeVar("Value")
Json = dict[str, Any]


class Growing(Generic[Value]):
    """A value that is made from the JSON objects of a growing file. Other lines are ignored.

    `make` returns the value of an empty file, and `add` adds an object to a value.
    """

    def __init__(self, path: Path, make: Callable[[], Value], add: Callable[[Value, Json], object]) -> None:
        self._path, self._make, self._add = path, make, add
        self._value, self._inode, self._end, self._mark = make(), 0, 0, b""
        self._lock = Lock()

    @contextmanager
    def read(self) -> Iterator[Value]:
        """Yield the value of all objects so far; it does not change inside the `with` block."""
        with self._lock:
            if not self._path.exists():
                self._value, self._end, self._mark = self._make(), 0, b""
            with suppress(OSError, UserError):
                self._read_on()
            yield self._value

    def _read_on(self) -> None:
        status = self._path.stat()
        if (status.st_ino, status.st_size) == (self._inode, self._end):
            return
        with open_regular(self._path) as file:
            file.seek(self._end - len(self._mark))
            if status.st_ino != self._inode or status.st_size < self._end or file.read(len(self._mark)) != self._mark:
                self._value, self._inode, self._end, self._mark = self._make(), status.st_ino, 0, b""
            file.seek(self._end)
            lines = file.read().rpartition(b"\n")[0]
        if lines:
            self._end, self._mark = self._end + len(lines) + 1, (lines + b"\n")[-MARK_BYTES:]
        for line in lines.split(b"\n"):
            with suppress(ValueError, RecursionError):
                if isinstance(record := json.loads(line), dict):
                    self._add(self._value, record)
