"""The module keeps a session's files from one execution to the next. It does not deal with processes."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic

from slimrl_sandbox.base import Limits, check_limits
from slimrl_sandbox.files import TooMuch, copy_tree


@dataclass(frozen=True, slots=True)
class Keeping:
    """Limits on the age, number and size of the kept sessions. If there is too much, those unused for longest are
    deleted first, but never a session in use."""

    ttl_s: float = 1800.0
    """Seconds after which an unused session is deleted with its files."""
    num_sessions: int = 1000
    """Sessions that are kept."""
    sessions_mb: int = 512
    """Size of the files of all sessions together."""

    def __post_init__(self) -> None:
        check_limits(**asdict(self))


class Session:
    """A session of executions. Hold `lock` for `load` and `save`, so that its executions run one at a time."""

    def __init__(self, directory: Path, limits: Limits, lives_on: bool) -> None:
        self.lock = asyncio.Lock()
        self.used_s = monotonic()
        self.num_users = 0
        self.num_bytes = 0
        self._directory = directory
        self._limits = limits
        self._lives_on = lives_on

    def load(self, scratch: int) -> None:
        """Copy the session's files into an empty directory, given as a descriptor."""
        if self._directory.exists():
            with _open_directory(self._directory) as source:
                self._copy(source, scratch)

    def save(self, scratch: int) -> bool:
        """Replace the session's files by a directory's. If these exceed the limits, keep no files and return False."""
        self.drop()
        if not self._lives_on or not os.listdir(scratch):
            return True
        self._directory.mkdir(mode=0o700)
        try:
            with _open_directory(self._directory) as target:
                self.num_bytes = self._copy(scratch, target)
        except (TooMuch, OSError):
            self.drop()
            return False
        return True

    def drop(self) -> None:
        """Delete the session's files."""
        shutil.rmtree(self._directory, ignore_errors=True)
        self.num_bytes = 0

    def _copy(self, source: int, target: int) -> int:
        return copy_tree(source, target, self._limits.scratch_mb * 2**20, self._limits.num_files)


class Sessions:
    """The sessions by id, within the limits of `keeping`."""

    def __init__(self, limits: Limits, keeping: Keeping) -> None:
        self._limits = limits
        self._keeping = keeping
        self._by_id: dict[str, Session] = {}
        self._root = Path(tempfile.mkdtemp(prefix="slimrl-sessions-"))
        self._num_opened = 0

    @contextmanager
    def open(self, session_id: str) -> Iterator[Session]:
        """Yield the session of an id, which does not expire in the context; for `""` a new one without files."""
        while (oldest := self._oldest()) and oldest.used_s < monotonic() - self._keeping.ttl_s:
            self._drop(oldest)
        if (session := self._by_id.get(session_id)) is None:
            self._num_opened += 1  # names the directory: an id is sent by a client, and may be no valid file name
            session = Session(self._root / str(self._num_opened), self._limits, lives_on=bool(session_id))
        session.num_users += 1
        if session_id:
            self._by_id[session_id] = session
            while len(self._by_id) > self._keeping.num_sessions and (oldest := self._oldest()):
                self._drop(oldest)
        try:
            yield session
        finally:
            session.num_users -= 1
            session.used_s = monotonic()

    def fits(self, session: Session) -> bool:
        """Delete the oldest idle directories until all files fit, and return True. If they cannot fit, delete the files
        of `session` and return False."""
        while sum(kept.num_bytes for kept in self._by_id.values()) > self._keeping.sessions_mb * 2**20:
            if not (oldest := self._oldest()):
                session.drop()
                return False
            self._drop(oldest)
        return True

    def close(self) -> None:
        """Delete all sessions with their files."""
        self._by_id.clear()
        shutil.rmtree(self._root, ignore_errors=True)

    def _oldest(self) -> Session | None:
        """Return the session without users that was not used for longest; None if all are in use."""
        idle = [session for session in self._by_id.values() if not session.num_users]
        return min(idle, key=lambda session: session.used_s, default=None)

    def _drop(self, session: Session) -> None:
        session.drop()
        self._by_id = {key: kept for key, kept in self._by_id.items() if kept is not session}


@contextmanager
def _open_directory(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
