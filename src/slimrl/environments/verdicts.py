"""Verdicts of judges, kept on disk by a key. Knows nothing of how one comes about."""

import sqlite3
from pathlib import Path

from slimrl.errors import UserError


class VerdictCache:
    """One SQLite file that several processes may share; `:memory:` is one that nobody else sees."""

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS verdict (key TEXT PRIMARY KEY, yes INTEGER NOT NULL) WITHOUT ROWID"
            )
        except (OSError, sqlite3.DatabaseError) as error:
            raise UserError(f"the judge's cache {path} cannot be used: {error}. Delete it, or name another.") from error

    def get(self, key: str) -> bool | None:
        row = self._database.execute("SELECT yes FROM verdict WHERE key = ?", (key,)).fetchone()
        return None if row is None else bool(row[0])

    def put(self, key: str, verdict: bool) -> None:
        self._database.execute("INSERT OR REPLACE INTO verdict VALUES (?, ?)", (key, int(verdict)))

    def close(self) -> None:
        self._database.close()

    def __len__(self) -> int:
        return int(self._database.execute("SELECT COUNT(*) FROM verdict").fetchone()[0])
