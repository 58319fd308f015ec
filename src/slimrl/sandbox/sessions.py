"""The module keeps a session's files from one execution to the next. It knows nothing of processes."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

from slimrl.sandbox.base import Limits
from slimrl.sandbox.files import Copy, TooMuch


class Session:
    """A session of executions. Hold `lock` to call `load` and `save`, so that its executions run one at a time."""

    def __init__(self, directory: Path, limits: Limits, lives_on: bool) -> None:
        self.lock = asyncio.Lock()
        self.used_s = monotonic()
        self.num_users = 0
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
            with _open_directory(self._directory) as target:
                self._copy().tree(scratch, target)
        except (TooMuch, OSError):
            self.drop()
            return False
        return True

    def drop(self) -> None:
        """Delete the session's files."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def _copy(self) -> Copy:
        return Copy(self._limits.scratch_mb * 2**20, self._limits.num_files)


class Sessions:
    """The open sessions by id. A session that is not used for `ttl_s` seconds is deleted with its files."""

    def __init__(self, limits: Limits, ttl_s: float) -> None:
        self._limits = limits
        self._ttl_s = ttl_s
        self._by_id: dict[str, Session] = {}
        self._root = Path(tempfile.mkdtemp(prefix="slimrl-sessions-"))
        self._num_opened = 0

    @contextmanager
    def open(self, session_id: str) -> Iterator[Session]:
        """The session of an id, which cannot expire while the context is open; for `""` a new one without files."""
        self._expire()
        session = self._by_id.get(session_id) or self._new(lives_on=bool(session_id))
        if session_id:
            self._by_id[session_id] = session
        session.num_users += 1
        try:
            yield session
        finally:
            session.num_users -= 1
            session.used_s = monotonic()

    def close(self) -> None:
        """Delete all sessions with their files."""
        self._by_id.clear()
        shutil.rmtree(self._root, ignore_errors=True)

    def _new(self, lives_on: bool) -> Session:
        self._num_opened += 1  # names the directory: an id comes from a client, and may be no file name
        return Session(self._root / str(self._num_opened), self._limits, lives_on)

    def _expire(self) -> None:
        oldest_s = monotonic() - self._ttl_s
        for session_id, session in list(self._by_id.items()):
            # One with users is held or waited for, however long ago it was last used.
            if session.num_users == 0 and session.used_s < oldest_s:
                session.drop()
                del self._by_id[session_id]


@contextmanager
def _open_directory(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
