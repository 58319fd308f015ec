"""The module keeps a session's files from one execution to the next. It knows nothing of processes."""

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
from slimrl_sandbox.files import Copy, TooMuch


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long and how much is kept of sessions. Where it is too much, those go first that were not used for longest,
    and none that is in use."""

    ttl_s: float = 1800.0
    """Seconds after which an unused session is deleted with its files."""
    num_sessions: int = 1000
    """Sessions that are kept."""
    sessions_mb: int = 512
    """Size of the files of all sessions together."""

    def __post_init__(self) -> None:
        check_limits(**asdict(self))


class Session:
    """A session of executions. Hold `lock` to call `load` and `save`, so that its executions run one at a time."""

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
                self._copy().tree(source, scratch)

    def save(self, scratch: int) -> bool:
        """Replace the session's files by a directory's; return False, and keep none, if they exceed the limits."""
        self.drop()
        if not self._lives_on or not os.listdir(scratch):
            return True
        self._directory.mkdir(mode=0o700)
        try:
            copy = self._copy()
            with _open_directory(self._directory) as target:
                copy.tree(scratch, target)
            self.num_bytes = copy.num_bytes
        except (TooMuch, OSError):
            self.drop()
            return False
        return True

    def drop(self) -> None:
        """Delete the session's files."""
        shutil.rmtree(self._directory, ignore_errors=True)
        self.num_bytes = 0

    def _copy(self) -> Copy:
        return Copy(self._limits.scratch_mb * 2**20, self._limits.num_files)


class Sessions:
    """The sessions by id, as long and as many as `keeping` says."""

    def __init__(self, limits: Limits, keeping: Keeping) -> None:
        self._limits = limits
        self._keeping = keeping
        self._by_id: dict[str, Session] = {}
        self._root = Path(tempfile.mkdtemp(prefix="slimrl-sessions-"))
        self._num_opened = 0

    @contextmanager
    def open(self, session_id: str) -> Iterator[Session]:
        """The session of an id, which cannot expire while the context is open; for `""` a new one without files."""
        self._expire()
        session = self._by_id.get(session_id) or self._new(lives_on=bool(session_id))
        session.num_users += 1
        if session_id:
            self._by_id[session_id] = session
            while len(self._by_id) > self._keeping.num_sessions and self._drop_oldest():
                pass
        try:
            yield session
        finally:
            session.num_users -= 1
            session.used_s = monotonic()

    def fits(self, session: Session) -> bool:
        """Whether there is room for the files that a session has saved, once those of others are deleted; if there is
        none, its own are."""
        while sum(kept.num_bytes for kept in self._by_id.values()) > self._keeping.sessions_mb * 2**20:
            if not self._drop_oldest():
                session.drop()
                return False
        return True

    def close(self) -> None:
        """Delete all sessions with their files."""
        self._by_id.clear()
        shutil.rmtree(self._root, ignore_errors=True)

    def _new(self, lives_on: bool) -> Session:
        self._num_opened += 1  # names the directory: an id comes from a client, and may be no file name
        return Session(self._root / str(self._num_opened), self._limits, lives_on)

    def _expire(self) -> None:
        oldest_s = monotonic() - self._keeping.ttl_s
        while any(session.used_s < oldest_s for _, session in self._idle_sessions()) and self._drop_oldest():
            pass

    def _drop_oldest(self) -> bool:
        """Delete the session that was not used for longest; return False if all are in use."""
        session_id, session = min(self._idle_sessions(), key=lambda item: item[1].used_s, default=("", None))
        if session is None:
            return False
        session.drop()
        del self._by_id[session_id]
        return True

    def _idle_sessions(self) -> list[tuple[str, Session]]:
        # One with users is held or waited for, however long ago it was last used.
        return [item for item in self._by_id.items() if item[1].num_users == 0]


@contextmanager
def _open_directory(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
