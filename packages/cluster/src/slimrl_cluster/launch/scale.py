"""The number of samplers of a running run: as many as a user requests, or as its queue needs.

Both are files in the run's directory: the requested number, and the orchestrator's number of running and waiting
sequences. The supervisor reads them.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from slimrl.errors import UserError
from slimrl.io.files import parse_object, replace_file

WANTED = "transport/num_samplers"
LOAD = "transport/load.json"
GROW_S, SHRINK_S = 20.0, 120.0  # seconds for which a queue must exist, or be empty, before the number changes
TELL_S, STALE_S = 2.0, 10.0


def write_scale(output_dir: Path, num: int) -> None:
    """Request `num` samplers for the run in a directory."""
    replace_file(output_dir / WANTED, [str(num).encode()])


def read_scale(output_dir: Path) -> int:
    """Return the requested number of samplers; 0 without a request."""
    try:
        text = (output_dir / WANTED).read_text(encoding="utf-8")
    except FileNotFoundError:
        return 0
    return int(text) if text.isdecimal() else 0


def clear_scale(output_dir: Path) -> None:
    """Forget requests: at a start the settings count."""
    (output_dir / WANTED).unlink(missing_ok=True)
    (output_dir / LOAD).unlink(missing_ok=True)


@contextmanager
def published_load(output_dir: Path, num_open: Callable[[], int]) -> Iterator[None]:
    """Context manager: publish the number of running and waiting sequences every `TELL_S`."""
    done = threading.Event()

    def tell() -> None:
        while not done.wait(TELL_S):
            with suppress(UserError):  # for example for a full disk, which other parts report
                write_load(output_dir, num_open())

    thread = threading.Thread(target=tell, name="load", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(TELL_S)  # a disk may not answer


def write_load(output_dir: Path, num_open: int) -> None:
    """Publish the number of running and waiting sequences."""
    replace_file(output_dir / LOAD, [json.dumps({"open": num_open}).encode()])


class LoadReader:
    """Reads the orchestrator's published load. Its age is measured by the changes seen here, because the clocks of two
    machines may differ."""

    def __init__(self, output_dir: Path) -> None:
        self._path, self._last, self._changed = output_dir / LOAD, b"", 0.0

    def read(self) -> int | None:
        """Return the number of running and waiting sequences; None if it was not published lately."""
        try:
            content = self._path.read_bytes()
            num_open = int(parse_object(content)["open"])
        except (FileNotFoundError, ValueError):
            return None
        if content != self._last:
            self._last, self._changed = content, time.monotonic()
        return num_open if time.monotonic() - self._changed < STALE_S else None


class QueueScale:
    """Chooses the number of samplers by the length of their queue, between `least` and `most`; each samples `slots`
    sequences at once."""

    def __init__(self, least: int, most: int, slots: int) -> None:
        self._least, self._most, self._slots = least, most, slots
        self._since: float | None = None  # time since which a change is due
        self._due = 0

    def num(self, now: int, num_open: int, at_s: float) -> int:
        """Return the number of samplers to have, given `now` samplers, at a time in seconds."""
        due = 0
        if num_open > now * self._slots and now < self._most:
            due = 1
        elif num_open <= (now - 1) * self._slots and now > self._least:
            due = -1
        if due != self._due:
            self._due, self._since = due, at_s
        if not due or self._since is None or at_s - self._since < (GROW_S if due > 0 else SHRINK_S):
            return now
        self._since = at_s  # the next change has to wait as long again
        return now + due
