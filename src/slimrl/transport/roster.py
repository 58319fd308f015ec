"""Who takes part in a run of several processes: a file for each part, in `transport/` of the run's directory.

    transport/trainer.json         {"pid": 4711, "host": "desk", "dtype": "bfloat16", "first_step": "0", ...}
    transport/inference.json       {"pid": 4712, "host": "desk", "address": "http://127.0.0.1:8000"}
    transport/orchestrator.json    {"pid": 4713, "host": "desk"}

A part holds a lock on its file while it lives. The operating system releases the lock when the process dies, however it
dies, so a file that nobody holds says nothing. Knows nothing of what the parts do.
"""

import fcntl
import json
import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal

from slimrl.errors import UserError
from slimrl.io.files import explain_write_errors, parse_object

Part = Literal["trainer", "orchestrator", "inference"]
Facts = Mapping[str, str]
PATIENCE_S = 1.0
POLL_S = 0.01


class Roster:
    """The parts of the run in a directory, as one process sees them."""

    def __init__(self, output_dir: Path) -> None:
        self.output_dir = output_dir
        self._directory = output_dir / "transport"
        self._seen: dict[Part, str] = {}

    @contextmanager
    def join(self, part: Part, facts: Facts) -> Iterator[None]:
        """Takes part as `part` inside the block; the others read `facts`. Raises UserError if another process does."""
        with self.reserve(part) as file:
            self.announce(file, facts)
            yield

    @contextmanager
    def reserve(self, part: Part) -> Iterator[IO[str]]:
        """Keeps others from being `part` inside the block, and gives the file to `announce` in. Raises UserError if
        another process is."""
        with explain_write_errors(self._path(part)):
            self._directory.mkdir(parents=True, exist_ok=True)
            opened = self._path(part).open("a", encoding="utf-8")
        with opened as file:
            deadline = time.monotonic() + PATIENCE_S  # who looks holds the lock for a moment
            while not _lock(file, fcntl.LOCK_EX):
                if time.monotonic() > deadline:
                    raise UserError(
                        f"another process is the {part} of the run in {self.output_dir}. End it, or give "
                        "`--output_dir` another directory."
                    )
                time.sleep(POLL_S)
            file.truncate(0)
            try:
                yield file
            finally:
                file.truncate(0)

    def announce(self, file: IO[str], facts: Facts) -> None:
        """Tells the others that this part is ready, and what they need to know of it."""
        with explain_write_errors(Path(file.name)):
            file.write(json.dumps({"pid": os.getpid(), "host": platform.node(), **facts}))
            file.flush()

    def find(self, part: Part) -> Facts | None:
        """What a part that lives has announced; None if there is none, or it has announced nothing yet."""
        try:
            file = self._path(part).open(encoding="utf-8")
        except FileNotFoundError:
            return None
        with file:
            if _lock(file, fcntl.LOCK_SH):
                return None  # nobody holds it: what it says is of the past
            text = file.read()  # still empty while the part prepares itself
        facts = {key: str(value) for key, value in parse_object(text.encode()).items()} if text else None
        if facts:
            self._seen.setdefault(part, _describe(facts))
        return facts

    def describe_end(self, part: Part) -> str:
        """What to say of a part that was there and is gone, whether or not another has taken its place; empty if it is
        there, or has not come yet."""
        found, seen = self.find(part), self._seen.get(part)
        if seen is None or (found and _describe(found) == seen):
            return ""
        return f"the {part} ({seen}) has ended; its log says why"

    def _path(self, part: Part) -> Path:
        return self._directory / f"{part}.json"


def _lock(file: IO[str], kind: int) -> bool:
    """Whether a lock of this kind could be had at once."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _describe(facts: Facts) -> str:
    return f"process {facts['pid']} on {facts['host']}"
