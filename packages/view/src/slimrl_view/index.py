"""The index of a run's rollouts: a SQLite file beside the run's own, which can be deleted at any time.

It lies in `RUN/.view/`, or in the cache if the run's directory is not writable. A damaged file there, or one of another
version, is replaced. Several viewers may use one index at once: one of them fills it.
"""

import hashlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from slimrl.errors import UserError
from slimrl.io.cache import cache_root, say
from slimrl.io.locks import hold_lock

DIRECTORY = ".view"
FILE = "index.sqlite"
VERSION = 0x534C5603  # "SLV" and the version of the tables below; an index of another version is built again
BUSY_S = 10.0

# A rollout's id is (file << 32) + line. The count of changes has a random start, so it identifies a state of one index.
SCHEMA = """
CREATE TABLE files (
  id INTEGER PRIMARY KEY, path TEXT UNIQUE NOT NULL, name TEXT NOT NULL, step INTEGER NOT NULL,
  lines INTEGER NOT NULL DEFAULT 0, damaged INTEGER NOT NULL DEFAULT 0,
  inode INTEGER NOT NULL DEFAULT 0, mtime_ns INTEGER NOT NULL DEFAULT 0, end INTEGER NOT NULL DEFAULT 0,
  mark BLOB NOT NULL DEFAULT x''
);
CREATE TABLE rollouts (
  id INTEGER PRIMARY KEY, file INTEGER NOT NULL, held_out INTEGER NOT NULL, line INTEGER NOT NULL,
  begin INTEGER NOT NULL, size INTEGER NOT NULL, step INTEGER NOT NULL, task TEXT NOT NULL, environment TEXT NOT NULL,
  role TEXT NOT NULL, grp TEXT NOT NULL, reward REAL, advantage REAL, "drop" TEXT NOT NULL, stop TEXT NOT NULL,
  turns INTEGER NOT NULL, tokens INTEGER NOT NULL, tool_calls INTEGER NOT NULL, flat INTEGER NOT NULL,
  zero_signal INTEGER NOT NULL, version INTEGER, excerpt TEXT NOT NULL, prompt TEXT NOT NULL,
  metrics TEXT NOT NULL
);
CREATE INDEX rollouts_group ON rollouts (file, grp);
CREATE INDEX rollouts_task ON rollouts (task);
CREATE TABLE texts (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE groups (
  file INTEGER NOT NULL, grp TEXT NOT NULL, held_out INTEGER NOT NULL, step INTEGER NOT NULL, task TEXT NOT NULL,
  num INTEGER NOT NULL, dropped INTEGER NOT NULL, mean REAL, min REAL, max REAL, std REAL,
  zero_signal INTEGER NOT NULL, rewards TEXT NOT NULL, prompt TEXT NOT NULL, PRIMARY KEY (file, grp)
) WITHOUT ROWID;
CREATE TABLE state (changes INTEGER NOT NULL);
INSERT INTO state VALUES (random() / 2);
"""


def index_path(run: Path) -> Path:
    """Return the path of a run's index, and create its directory. Raises UserError without a writable place."""
    for directory in (run / DIRECTORY, cache_root() / "view" / hashlib.sha256(os.fsencode(run)).hexdigest()[:16]):
        with suppress(OSError):
            directory.mkdir(parents=True, exist_ok=True)
            if os.access(directory, os.W_OK | os.X_OK):
                return directory / FILE
    raise UserError(
        f"the index of {run} can be written neither there nor to {cache_root()}. Name a directory in the environment "
        "variable SLIMRL_CACHE that can be written."
    )


def prepare(path: Path, is_damaged: bool = False) -> None:
    """Create an empty index unless one of this version exists. It replaces any other file, and every index if
    `is_damaged`. Raises sqlite3.OperationalError if writing fails, or another process writes for long."""
    # Another viewer may start at the same moment.
    with hold_lock(path.with_suffix(".new.lock"), f"making {path}", say):
        if not is_damaged and _is_ours(path):
            return
        for suffix in ("", "-wal", "-shm", "-journal"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        with connect(path) as connection:
            connection.execute("PRAGMA journal_mode = WAL")  # others read while the index grows
            connection.executescript(f"BEGIN; PRAGMA user_version = {VERSION}; {SCHEMA} COMMIT;")


def _is_ours(path: Path) -> bool:
    """Return True if the file is an index of this version, by its first page."""
    try:
        with connect(path) as connection:
            return bool(connection.execute("PRAGMA user_version").fetchone()[0] == VERSION)
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError:
        return False


@contextmanager
def connect(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection to the index, and close it afterwards. Nothing is written before a `BEGIN`."""
    with closing(sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        # SQLite's own `lower` only converts ASCII letters.
        connection.create_function("lowercase", 1, str.lower, deterministic=True)
        connection.execute("PRAGMA synchronous = NORMAL")
        yield connection


@contextmanager
def change(connection: sqlite3.Connection) -> Iterator[None]:
    """Change the index: readers see all writes of the `with` block together, or none of them after an error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("UPDATE state SET changes = changes + 1")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # after some errors SQLite has rolled it back by itself
            connection.execute("ROLLBACK")
        raise
