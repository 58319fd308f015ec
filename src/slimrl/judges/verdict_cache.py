"""A cache of verdicts on disk, by key. Knows nothing of how a verdict comes about."""

import hashlib
import os
import sqlite3
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from slimrl.errors import UserError
from slimrl.io.cache import say

T = TypeVar("T")
TABLE = "checked_verdict"
CREATE = f"CREATE TABLE IF NOT EXISTS {TABLE} (key TEXT PRIMARY KEY, verdict BLOB NOT NULL) WITHOUT ROWID"
# What SQLite says of a file that cannot be used for a reason outside of it; the bytes are damaged where it says else.
OUTSIDE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
    }
)


class VerdictCache:
    """A cache in one SQLite file, which several processes may share; the path `:memory:` is private to the object.

    SQLite has no checksums, so a verdict is kept as a digest of itself and its key: a damaged one is none. A damaged
    file is told of and begun anew. Every method raises UserError if the file cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database: sqlite3.Connection | None = None
        self._run(lambda database: None)

    def get(self, key: str) -> bool | None:
        """The verdict of a key, or None where there is none."""
        select = f"SELECT verdict FROM {TABLE} WHERE key = ?"
        row = self._run(lambda database: database.execute(select, (key,)).fetchone())
        return next((yes for yes in (True, False) if row and row[0] == _digest(key, yes)), None)

    def put(self, key: str, verdict: bool) -> None:
        """Keeps a verdict, in place of an earlier one of the key."""
        insert = f"INSERT OR REPLACE INTO {TABLE} VALUES (?, ?)"
        self._run(lambda database: database.execute(insert, (key, _digest(key, verdict))))

    def close(self) -> None:
        """Closes the file."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def __len__(self) -> int:
        return int(self._run(lambda database: database.execute(f"SELECT COUNT(*) FROM {TABLE}").fetchone()[0]))

    def _run(self, statement: Callable[[sqlite3.Connection], T]) -> T:
        """What a statement returns, on a new file if the present one turns out to be damaged. First it is opened again:
        another process may have begun it anew."""
        try:
            for is_opened_again in (False, True):
                try:
                    return statement(self._connect())
                except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the latter of a damaged message
                    if not self._is_damage(error):
                        raise
                    self.close()
                    if is_opened_again:
                        self._delete(error)
            return statement(self._connect())
        except (OSError, sqlite3.DatabaseError) as error:
            raise UserError(
                f"the judge's cache {self._path} cannot be used: {error}. Make room for it, or delete it; SLIMRL_CACHE "
                "names another directory."
            ) from error

    def _is_damage(self, error: Exception) -> bool:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code == sqlite3.SQLITE_READONLY:  # which a file may say of itself, in its first bytes
            return all(os.access(path, os.W_OK) for path in (self._path, self._path.parent))
        return code not in OUTSIDE

    def _connect(self) -> sqlite3.Connection:
        if self._database is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Each statement commits by itself. A judge opens and closes the file in one thread and uses it in another.
            database = sqlite3.connect(self._path, timeout=30, isolation_level=None, check_same_thread=False)
            self._database = database
            weakref.finalize(self, database.close)
            database.text_factory = bytes  # a damaged text is no UTF-8
            database.execute("PRAGMA journal_mode = WAL")
            database.execute(CREATE)
        return self._database

    def _delete(self, error: Exception) -> None:
        """Deletes the file and what SQLite keeps beside it. Another process that has them open goes on in the old
        ones."""
        say(f"The judge's cache {self._path} is damaged ({error}). It is begun anew; verdicts are asked again.")
        for suffix in ("", "-wal", "-shm", "-journal"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)


def _digest(key: str, verdict: bool) -> bytes:
    return hashlib.sha256(f"{key}={verdict}".encode()).digest()[:16]
