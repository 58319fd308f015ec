"""File locks between processes. A waiting process logs the holder, and raises UserError if the holder is stopped.

The operating system drops a lock when its holder dies, so a killed process blocks nobody.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from slimrl.errors import UserError
from slimrl.io.process_tree import is_stopped

POLL_S = 0.2
NOTICE_S = 60.0  # seconds between two log messages during a wait
STOPPED_S = 5.0  # seconds that a holder may be stopped before the wait fails


@contextmanager
def hold_lock(path: Path, work: str, note: Callable[[str], None]) -> Iterator[None]:
    """Context manager: hold the lock file `path`. While another process holds the lock, log this process and `work`,
    such as "building an index". Raise UserError if the holder is stopped (SIGSTOP), OSError if writing fails."""
    lock = FileLock(path)
    began, noted, stopped_since = time.monotonic(), -NOTICE_S, 0.0
    while not acquire(lock, POLL_S):
        now, holder = time.monotonic(), holder_of(path)
        if now - noted > NOTICE_S:
            noted = now
            note(f"waiting for {_name(holder)}, which is {work}, for {now - began:.0f} s so far")
        stopped_since = (stopped_since or now) if is_stopped(holder) else 0.0
        if stopped_since and now - stopped_since > STOPPED_S:
            raise UserError(
                f"process {holder}, which is {work}, is stopped, and holds {path}. Continue it (`kill -CONT {holder}`) "
                f"or end it (`kill -KILL {holder}`)."
            )
    try:
        yield
    finally:
        lock.release()


def holder_of(path: Path) -> int:
    """Return the id of the process that holds a lock file; 0 if unknown, for example on another machine."""
    with suppress(OSError, ValueError):
        status = path.stat()
        place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            words = line.split()
            if words[1] == "FLOCK" and words[5] == place:
                return int(words[4])
    return 0


def _name(holder: int) -> str:
    return f"process {holder}" if holder else "another process"


def acquire(lock: FileLock, seconds: float) -> bool:
    """Wait at most `seconds` for the lock. Return True on success, False if another process still holds the lock."""
    try:
        lock.acquire(timeout=seconds)
    except Timeout:
        return False
    return True
