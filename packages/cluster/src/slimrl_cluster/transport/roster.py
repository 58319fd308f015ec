"""The members of a run of several processes: a file for each part, in `transport/` of the run's directory.

    transport/trainer.json         {"pid": "4711", "host": "desk", "dtype": "bfloat16", "first_step": "0", ...}
    transport/inference-0.json     {"pid": "4712", "host": "desk", "address": "http://127.0.0.1:8000", ...}
    transport/orchestrator.json    {"pid": "4713", "host": "desk", ...}

A part holds a lock on its file while it lives. The operating system releases the lock when the process dies, for any
reason, so a file without a lock is out of date. Knows nothing of the parts' work. On a Ray cluster there are no such
files (`services/ray_cluster.py`).
"""

import fcntl
import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import IO

from slimrl.config.deployment import Part
from slimrl.errors import UserError
from slimrl.io.files import explain_write_errors, parse_object
from slimrl.io.run_dir import RunDir

Facts = Mapping[str, str]
SEVERAL: Part = "inference"  # a run may have any number of these, each at a numbered place
PATIENCE_S = 1.0  # seconds to wait for the place of a part that a run has only once
LOOK_S = 0.1  # seconds to wait for one of several places
POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a member. `announce` sends the others the facts that they need, once this one is ready."""

    name: str
    announce: Callable[[Facts], None]


class Roster:
    """The parts of the run in a directory, as one process sees them."""

    def __init__(self, output_dir: Path) -> None:
        self._directory = RunDir(output_dir).transport
        self._seen: dict[Part, str] = {}

    @contextmanager
    def join(self, part: Part, facts: Facts, patience_s: float = 0.0) -> Iterator[None]:
        """Context manager: take part as `part`; the others read `facts`. Raises UserError as `reserve`."""
        with self.reserve(part, patience_s) as place:
            place.announce(facts)
            yield

    @contextmanager
    def reserve(self, part: Part, patience_s: float = 0.0) -> Iterator[Place]:
        """Context manager: lock the place of `part`, or the first free one of its places, and yield it. Raises
        UserError if another process still is this part after `patience_s`."""
        patience_s = LOOK_S if part == SEVERAL else max(patience_s, PATIENCE_S)
        for name in (f"{part}-{number}" for number in count()) if part == SEVERAL else (part,):
            path = self._directory / f"{name}.json"
            with explain_write_errors(path):
                self._directory.mkdir(parents=True, exist_ok=True)
                opened = path.open("a", encoding="utf-8")
            with opened as file:
                if not _lock_within(file, patience_s):
                    continue
                file.truncate(0)
                try:
                    yield Place(name, partial(_announce, file, part))
                    return
                finally:
                    file.truncate(0)
        raise UserError(
            f"another process is the {part} of the run in {self._directory.parent}. End it, or give `--output_dir` "
            "another directory."
        )

    def members(self, part: Part) -> dict[str, Facts]:
        """Return the facts of all living and ready parts of this kind, by the name of their place."""
        paths = self._directory.glob(f"{part}-*.json") if part == SEVERAL else [self._directory / f"{part}.json"]
        found = ((path.stem, _read_held(path)) for path in sorted(paths, key=lambda path: (len(path.name), path.name)))
        return {name: facts for name, facts in found if facts}

    def find(self, part: Part) -> Facts | None:
        """Return the facts that a living part has announced; None without such a part. If there are several parts,
        return the first part's facts."""
        facts = next(iter(self.members(part).values()), None)
        if facts:
            self._seen.setdefault(part, describe_member(facts))
        return facts

    def describe_end(self, part: Part) -> str:
        """Describe the end of a part that this process has seen, even if another part has replaced it. Return an empty
        text if the part is running, has not started, or is one of several of its kind."""
        if part == SEVERAL:
            return ""
        found, seen = self.find(part), self._seen.get(part)
        if seen is None or (found and describe_member(found) == seen):
            return ""
        return f"the {part} ({seen}) has ended; its log says why"


def own_facts(part: Part) -> Facts:
    """Return the facts that every member announces."""
    return {"part": part, "pid": str(os.getpid()), "host": platform.node()}


def describe_member(facts: Facts) -> str:
    """Describe the process that has announced these facts."""
    return f"process {facts['pid']} on {facts['host']}"


def _announce(file: IO[str], part: Part, facts: Facts) -> None:
    with explain_write_errors(Path(file.name)):
        file.write(json.dumps({**own_facts(part), **facts}))
        file.flush()


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
            return parse_object(file.read().encode())  # still empty while the part starts
        except ValueError:
            return None


def _lock_within(file: IO[str], seconds: float) -> bool:
    """Lock the file for this process alone. Return False after `seconds`. Readers hold the lock for a moment."""
    deadline = time.monotonic() + seconds
    while not _lock(file, fcntl.LOCK_EX):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def _lock(file: IO[str], kind: int) -> bool:
    """Try to lock the file. Return False if another process holds it."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
