"""A cache of verdicts on disk, by key. Knows nothing of how a verdict comes about."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slimrl.errors import UserError


class VerdictCache:
    """A cache in one SQLite file, which several processes may share; the path `:memory:` is private to the object.

    Every method raises UserError if the file cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._usable():
            path.parent.mkdir(parents=True, exist_ok=True)
            # Each statement commits by itself. A judge opens and closes the file in one thread and uses it in another.
            self._database = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS verdict (key TEXT PRIMARY KEY, yes INTEGER NOT NULL) WITHOUT ROWID"
            )

    def get(self, key: str) -> bool | None:
        """The verdict of a key, or None where there is none."""
        with self._usable():
            row = self._database.execute("SELECT yes FROM verdict WHERE key = ?", (key,)).fetchone()
        return None if row is None else bool(row[0])

    def put(self, key: str, verdict: bool) -> None:
        """Keeps a verdict, in place of an earlier one of the key."""
        with self._usable():
            self._database.execute("INSERT OR REPLACE INTO verdict VALUES (?, ?)", (key, int(verdict)))

    def close(self) -> None:
        """Closes the file."""
        self._database.close()

    def __len__(self) -> int:
        return int(self._database.execute("SELECT COUNT(*) FROM verdict").fetchone()[0])

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.DatabaseError) as error:
            raise UserError(
                f"the judge's cache {self._path} cannot be used: {error}. Make room for it, or delete it; SLIMRL_CACHE "
                "names another directory."
            ) from error
