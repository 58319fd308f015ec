"""The members of a run of several processes: a file for each part, in `transport/` of the run's directory.

    transport/trainer.json         {"pid": 4711, "host": "desk", "dtype": "bfloat16", "first_step": "0", ...}
    transport/inference-0.json     {"pid": 4712, "host": "desk", "address": "http://127.0.0.1:8000"}
    transport/orchestrator.json    {"pid": 4713, "host": "desk"}

A part holds a lock on its file while it lives. The operating system releases the lock when the process dies, for any
reason, so a file without a lock is out of date. Knows nothing of the parts' work.
"""

import fcntl
import json
import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO

from slimrl.config.deployment import Part
from slimrl.errors import UserError
from slimrl.io.files import explain_write_errors, parse_object, replace_file

Facts = Mapping[str, str]
SCALE = "transport/num_samplers"  # the number of samplers that a user requests
SEVERAL: Part = "inference"  # a run may have any number of these, each with a numbered file
PATIENCE_S = 1.0  # seconds to wait for the lock of a part that exists once in a run
LOOK_S = 0.1  # seconds to wait for the lock of each numbered file
POLL_S = 0.01


class Roster:
    """The parts of the run in a directory, as one process sees them."""

    def __init__(self, output_dir: Path) -> None:
        self.output_dir = output_dir
        self._directory = output_dir / "transport"
        self._seen: dict[Part, str] = {}

    @contextmanager
    def join(self, part: Part, facts: Facts, patience_s: float = 0.0) -> Iterator[None]:
        """Context manager: register this process as `part`, with `facts` for the other parts. Raises UserError if
        another process is still this part after `patience_s` seconds."""
        with self.reserve(part, patience_s) as file:
            self.announce(file, facts)
            yield

    @contextmanager
    def reserve(self, part: Part, patience_s: float = 0.0) -> Iterator[IO[str]]:
        """Context manager: lock the file of `part`, or the first of its numbered files that is free, and yield it for
        `announce`. Raises UserError if another process is still this part after `patience_s` seconds."""
        with self._open_place(part, max(patience_s, PATIENCE_S)) as file:
            file.truncate(0)
            try:
                yield file
            finally:
                file.truncate(0)

    def announce(self, file: IO[str], facts: Facts) -> None:
        """Write `facts` to the file that `reserve` has yielded. The other parts then see that this part is ready."""
        with explain_write_errors(Path(file.name)):
            file.write(json.dumps({"pid": os.getpid(), "host": platform.node(), **facts}))
            file.flush()

    def find(self, part: Part) -> Facts | None:
        """Return the facts that a living part has announced; None without such a part. If there are several parts,
        return the first part's facts."""
        facts = next(iter(self.members(part).values()), None)
        if facts:
            self._seen.setdefault(part, describe_member(facts))
        return facts

    def members(self, part: Part) -> dict[str, Facts]:
        """Return the facts of all living and ready parts of this kind, keyed by the name of their file without
        `.json`."""
        paths = sorted(self._directory.glob(f"{part}-*.json"), key=_number) if part == SEVERAL else [self._path(part)]
        found = ((path.stem, _read_held(path)) for path in paths)
        return {name: facts for name, facts in found if facts}

    def strike(self, name: str) -> None:
        """Remove the file of a lost part from the roster, so that no process relies on it. The part's lock may remain
        for a while if another machine holds the directory."""
        (self._directory / f"{name}.json").unlink(missing_ok=True)

    def describe_end(self, part: Part) -> str:
        """Describe the end of a part that this process has seen, even if another part has replaced it. Return an empty
        text if the part is running, has not started, or is one of several of its kind."""
        if part == SEVERAL:
            return ""
        found, seen = self.find(part), self._seen.get(part)
        if seen is None or (found and describe_member(found) == seen):
            return ""
        return f"the {part} ({seen}) has ended; its log says why"

    @contextmanager
    def _open_place(self, part: Part, patience_s: float) -> Iterator[IO[str]]:
        """Open and lock the file of the part, or the first of its numbered files that is free, and yield it."""
        for number in count():
            path = self._path(f"{part}-{number}" if part == SEVERAL else part)
            with explain_write_errors(path):
                self._directory.mkdir(parents=True, exist_ok=True)
                opened = path.open("a", encoding="utf-8")
            with opened as file:
                if _lock_within(file, LOOK_S if part == SEVERAL else patience_s) and _is_at(file, path):
                    yield file
                    return
            if part != SEVERAL:
                raise UserError(
                    f"another process is the {part} of the run in {self.output_dir}. End it, or give `--output_dir` "
                    "another directory."
                )

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.json"


def _read_held(path: Path) -> Facts | None:
    """Return the facts in a part's file. Return None if no process holds its lock, or before the holder has written
    them."""
    try:
        file = path.open(encoding="utf-8")
    except FileNotFoundError:
        return None
    with file:
        if _lock(file, fcntl.LOCK_SH):
            return None  # nobody holds it: its content is out of date
        try:
            facts = parse_object(file.read().encode())  # still empty while the part starts
        except ValueError:
            return None
    return {key: str(value) for key, value in facts.items()} if {"pid", "host"} <= facts.keys() else None


def _lock_within(file: IO[str], seconds: float) -> bool:
    """Lock the file for this process alone. Return False after `seconds`. Readers hold the lock for a moment."""
    deadline = time.monotonic() + seconds
    while not _lock(file, fcntl.LOCK_EX):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def _is_at(file: IO[str], path: Path) -> bool:
    """Return True if the open file is still at `path`, and was not removed or replaced."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _lock(file: IO[str], kind: int) -> bool:
    """Try to lock the file. Return False if another process holds it."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def describe_member(facts: Facts) -> str:
    """Describe the process that has announced these facts."""
    return f"process {facts['pid']} on {facts['host']}"


def _number(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])


def wait_path(output_dir: Path, part: Part) -> Path:
    """Return the path of the file that names the part for which `part` waits. It exists during the wait."""
    return output_dir / "transport" / "waits" / f"{part}.json"


def write_scale(output_dir: Path, num: int) -> None:
    """Request `num` samplers for the run in a directory."""
    replace_file(output_dir / SCALE, [str(num).encode()])


def read_scale(output_dir: Path) -> int:
    """Return the requested number of samplers; 0 without a request."""
    path = output_dir / SCALE
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return int(text) if text.isdecimal() else 0


def clear_scale(output_dir: Path) -> None:
    """Delete a request for a number of samplers. When a run starts, its settings apply."""
    (output_dir / SCALE).unlink(missing_ok=True)
