"""Lets the parts of a run find each other through files in `transport/`, a directory of the run.

    transport/trainer.json                  {"pid": "4711", "host": "desk", "dtype": "bfloat16", "first_step": "0", ...}
    transport/inference-0.json              {"pid": "4712", "host": "desk", "address": "http://127.0.0.1:8000", ...}
    transport/orchestrator.json             {"pid": "4713", "host": "desk", ...}
    transport/waits/trainer.json            `slimrl status` reads here for which part the trainer waits
    transport/batches/step_7.json           the batch of training step 7, by the orchestrator
    transport/weights/step_7/               the weights after 7 steps, by the trainer; the sampler reads them

A part holds a lock on its own file while it lives. The operating system releases the lock when the process dies, for
any reason, so a file without a lock is out of date. On a Ray cluster, an actor replaces these locked files
(`services/ray_cluster.py`). Batches and weights get their final names when they are complete, so a killed process
leaves no partial file. All this needs only a shared file system.
"""

import fcntl
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import IO, TypeVar

from slimrl.config.deployment import Part
from slimrl.errors import UserError
from slimrl.io.files import explain_write_errors, parse_object, replace_file
from slimrl.io.run_dir import RunDir, step_directories, step_of

Facts = Mapping[str, str]
SEVERAL: Part = "inference"  # a run may have any number of parts of this kind, each at a numbered place
PATIENCE_S = 1.0  # seconds to wait for the place of a part that a run has only once
PLACE_S = 0.1  # seconds to wait for one of several places
LOCK_S = 0.01  # seconds between two tries to lock a file
POLL_S = 0.02
CHECK_S = 1.0  # seconds between two checks that the other part lives
SAY_S = 30.0  # seconds of waiting before it is logged
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Place:
    """The reserved place of a part in the roster. Once the part is ready, `announce` sends the other parts the facts
    that they need."""

    name: str
    announce: Callable[[Facts], None]


class Roster:
    """The parts of a run, as the part `own` sees them. `note` receives a line about a long wait for another part."""

    def __init__(self, run: RunDir, own: Part, timeout_s: float, note: Callable[[str], None]) -> None:
        self.run, self.own, self.note = run, own, note
        self._timeout_s = timeout_s
        self._seen: dict[Part, str] = {}

    @contextmanager
    def reserve(self, patience_s: float = 0.0) -> Iterator[Place]:
        """Context manager: lock the place of this part, and yield it. If the run may have several parts of this kind,
        lock the first free place. Raises UserError if another process still holds the place after `patience_s`."""
        part, directory = self.own, self.run.transport
        patience_s = PLACE_S if part == SEVERAL else max(patience_s, PATIENCE_S)
        for name in (f"{part}-{number}" for number in count()) if part == SEVERAL else (part,):
            path = directory / f"{name}.json"
            with explain_write_errors(path):
                directory.mkdir(parents=True, exist_ok=True)
                opened = path.open("a", encoding="utf-8")
            with opened as file:
                if not _lock_within(file, patience_s):
                    continue
                file.truncate(0)
                try:
                    yield Place(name, lambda facts: self._announce(file, facts))
                    return
                finally:
                    file.truncate(0)
        raise UserError(
            f"another process is the {part} of the run in {self.run.path}. End it, or give `--output_dir` another "
            "directory."
        )

    def members(self, part: Part) -> dict[str, Facts]:
        """Return the facts of all living and ready parts of the kind `part`, by the name of their place."""
        return file_members(self.run, part)

    def find(self, part: Part) -> Facts | None:
        """Return the facts that a running process of the type `part` has announced; None if none is running."""
        facts = next(iter(self.members(part).values()), None)
        if facts:
            self._seen.setdefault(part, describe_member(facts))
        return facts

    def await_part(self, part: Part) -> Facts:
        """Wait until a part has started, and return the facts that it has announced. Raises UserError if the part does
        not start."""
        return self.wait(part, f"start (`slimrl {part} @ FILE`)", lambda: self.find(part))

    def wait(self, part: Part, awaited: str, find: Callable[[], T | None]) -> T:
        """Call `find` until its result is not None, and return the result. `find` looks for something that the part
        `part` must produce, and `awaited` is its name in messages. Raises UserError if that part dies, or shows no sign
        of work for `timeout_s`."""
        began = checked = said = heard = time.monotonic()
        signs = self._signs(part)
        with ExitStack() as shown:
            while (found := find()) is None:
                now = time.monotonic()
                if now - checked > min(CHECK_S, self._timeout_s / 4):
                    if checked == began:
                        shown.enter_context(self._show_wait(part, awaited))
                    checked = now
                    end = self._describe_end(part)
                    if end and (found := find()) is not None:
                        break  # it was that part's last work
                    if end:
                        raise UserError(
                            f"{end}. It has not left its {awaited}; mend that, and continue with `--resume`."
                        )
                    if (newest := self._signs(part)) != signs:
                        signs, heard = newest, now
                if now - heard > self._timeout_s:
                    raise UserError(
                        f"waited {now - began:.0f} s in vain for the {part}'s {awaited}: for {now - heard:.0f} s it "
                        "has written nothing (deployment.timeout_s). Its log says what it does; mend that, and "
                        "continue with `--resume`."
                    )
                if now - said > SAY_S:
                    said = now
                    self.note(f"waiting for the {part}'s {awaited}, for {now - began:.0f} s so far")
                time.sleep(POLL_S)
        return found

    def _facts(self) -> Facts:
        return {"part": self.own, "pid": str(os.getpid()), "host": platform.node()}

    def _announce(self, file: IO[str], facts: Facts) -> None:
        with explain_write_errors(Path(file.name)):
            file.write(json.dumps({**self._facts(), **facts}))
            file.flush()

    def _describe_end(self, part: Part) -> str:
        """Return text about the end of a part that this process has seen alive, even if a new process replaces it. The
        text is empty if the part still runs, was never seen, or is a sampler."""
        found, seen = self.find(part), self._seen.get(part)
        if part == SEVERAL or seen is None or (found and describe_member(found) == seen):
            return ""
        return f"the {part} ({seen}) has ended; its log says why"

    def _signs(self, part: Part) -> frozenset[tuple[Path, int, int]]:
        """Return the files that a part writes while it works, each with its size and time. If two results differ, the
        part works. The times are not compared with this machine's clock, because a file server's clock may differ."""
        run, found = self.run, set()
        written: dict[Part, list[Path]] = {
            "trainer": [run.metrics, run.warmup.metrics],
            "orchestrator": [*run.held_out.glob("*.jsonl"), *run.batches.glob("step_*")],
            "inference": [],
        }
        for path in written[part]:
            with suppress(FileNotFoundError):  # deleted in the meantime
                status = path.stat()
                found.add((path, status.st_size, status.st_mtime_ns))
        return frozenset(found)

    @contextmanager
    def _show_wait(self, part: Part, awaited: str) -> Iterator[None]:
        """Context manager: record the wait of this process in a file for `slimrl status`: its start, the awaited
        object, and the part that must produce it."""
        path = wait_path(self.run, self.own)
        wait = {"pid": os.getpid(), "for": part, "what": awaited, "since": time.time()}
        replace_file(path, [json.dumps(wait).encode()])
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def describe_member(facts: Facts) -> str:
    """Describe the process that has announced these facts."""
    return f"process {facts['pid']} on {facts['host']}"


def file_members(run: RunDir, part: Part) -> dict[str, Facts]:
    """Return the facts of all living and ready parts of the kind `part` that have files, by the name of their place."""
    paths = run.transport.glob(f"{part}-*.json") if part == SEVERAL else [run.transport / f"{part}.json"]
    found = ((path.stem, _read_held(path)) for path in sorted(paths, key=lambda path: (len(path.name), path.name)))
    return {name: facts for name, facts in found if facts}


def wait_path(run: RunDir, part: str) -> Path:
    """Return the path of a file that exists while `part` waits for another part. The file names that other part."""
    return run.transport / "waits" / f"{part}.json"


def newest_version(run: RunDir) -> int:
    """Return the newest version of the weights that the trainer has published; -1 before the first one."""
    return max(map(step_of, step_directories(run.sent_weights)), default=-1)


def drop_before(directory: Path, step: int) -> None:
    """Delete the files and directories `step_N` of earlier steps."""
    for path in directory.glob("step_*"):
        if int(path.stem.removeprefix("step_")) < step:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _read_held(path: Path) -> Facts | None:
    """Return the facts in a part's file. Return None if no process holds the lock of the file, or if its holder has not
    written the facts yet."""
    try:
        with path.open(encoding="utf-8") as file:
            # A file that nobody holds is out of date. It is empty or partly written while its holder starts.
            return None if _lock(file, fcntl.LOCK_SH) else parse_object(file.read().encode())
    except (FileNotFoundError, ValueError):
        return None


def _lock_within(file: IO[str], seconds: float) -> bool:
    """Lock the file for this process alone. Try repeatedly, because a reader may hold the lock for a moment. Return
    False if all tries within `seconds` fail."""
    deadline = time.monotonic() + seconds
    while not _lock(file, fcntl.LOCK_EX):
        if time.monotonic() > deadline:
            return False
        time.sleep(LOCK_S)
    return True


def _lock(file: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
