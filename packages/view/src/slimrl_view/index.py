"""The index of a run's rollouts: a SQLite file beside the run's files. A user may delete it at any time.

The index is in `RUN/.view/`, or in slimrl's cache if the run's directory is not writable. A damaged index is replaced.
A new or changed file of rollouts is read completely, in one transaction. So several viewers may use one index at the
same time, and share the work. A damaged line is counted and skipped.
"""

import hashlib
import io
import math
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

from slimrl.errors import UserError
from slimrl.io.cache import cache_root, say
from slimrl.io.locks import hold_lock
from slimrl.io.regular_file import open_regular
from slimrl_view.lines import read_line
from slimrl_view.runs import TRAIN, RolloutFile, rollout_files

FILE = "index-4.sqlite"  # with the version of the tables below
BUSY_S = 10.0
BATCH = 200  # lines written at once
Json = dict[str, Any]

# A rollout's id is (file << 32) + line. `changes` starts at a random number, so it identifies the index and its state.
SCHEMA = """
BEGIN;
CREATE TABLE files (
  id INTEGER PRIMARY KEY, path TEXT UNIQUE NOT NULL, name TEXT NOT NULL, step INTEGER NOT NULL,
  lines INTEGER NOT NULL DEFAULT 0, damaged INTEGER NOT NULL DEFAULT 0, stamp TEXT NOT NULL, size INTEGER NOT NULL
);
CREATE TABLE rollouts (
  id INTEGER PRIMARY KEY, file INTEGER NOT NULL, held_out INTEGER NOT NULL, line INTEGER NOT NULL,
  begin INTEGER NOT NULL, size INTEGER NOT NULL, step INTEGER NOT NULL, task TEXT NOT NULL, environment TEXT NOT NULL,
  role TEXT NOT NULL, grp TEXT NOT NULL, reward REAL, advantage REAL, "drop" TEXT NOT NULL, stop TEXT NOT NULL,
  turns INTEGER NOT NULL, tokens INTEGER NOT NULL, tool_calls INTEGER NOT NULL, flat INTEGER NOT NULL,
  zero_signal INTEGER NOT NULL DEFAULT 0, version INTEGER, excerpt TEXT NOT NULL, prompt TEXT NOT NULL,
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
COMMIT;
"""
# `zero_signal` is 1 if some rollouts of a group have advantages, and every rollout with advantages is `flat`.
GROUPS = """
INSERT INTO groups SELECT file, grp, held_out, step, task, count(*), sum("drop" != ''), center, min(reward),
  max(reward), root(avg((reward - center) * (reward - center))),
  coalesce(min(CASE WHEN advantage IS NOT NULL THEN flat END), 0), json_group_array(reward), prompt
  FROM (SELECT *, avg(reward) OVER (PARTITION BY grp) AS center FROM rollouts WHERE file = ? ORDER BY line)
  GROUP BY grp
"""
SIGNALS = """
UPDATE rollouts SET zero_signal =
  (SELECT zero_signal FROM groups WHERE groups.file = rollouts.file AND groups.grp = rollouts.grp) WHERE file = ?
"""


def index_path(run: Path) -> Path:
    """Return the path of a run's index."""
    if os.access(run, os.W_OK):
        return run / ".view" / FILE
    return cache_root() / "view" / hashlib.sha256(os.fsencode(run)).hexdigest()[:16] / FILE


def prepare(path: Path) -> None:
    """Create an empty index at `path`, unless an index is there. A damaged file there is replaced. Raises
    sqlite3.OperationalError or OSError if writing fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Another viewer may start at the same moment.
    with hold_lock(path.with_suffix(".lock"), f"making {path}", say):
        try:
            _create(path)
        except sqlite3.OperationalError:  # the file is not damaged
            raise
        except sqlite3.DatabaseError:
            remove(path)
            _create(path)


def _create(path: Path) -> None:
    with connect(path) as connection:
        if not connection.execute("SELECT * FROM sqlite_master").fetchone():
            connection.execute("PRAGMA journal_mode = WAL")  # other processes can read while the index grows
            connection.executescript(SCHEMA)


def remove(path: Path) -> None:
    """Delete an index with the files that SQLite keeps beside it."""
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink(missing_ok=True)


@contextmanager
def connect(path: Path) -> Iterator[sqlite3.Connection]:
    """Context manager: open a connection to the index. A transaction starts only with an explicit `BEGIN`."""
    with closing(sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        # SQLite's own `lower` only converts ASCII letters.
        connection.create_function("lowercase", 1, str.lower, deterministic=True)
        connection.create_function("root", 1, lambda number: number and math.sqrt(number), deterministic=True)
        connection.execute("PRAGMA synchronous = NORMAL")
        yield connection


@contextmanager
def change(connection: sqlite3.Connection) -> Iterator[None]:
    """Context manager: change the index in one transaction. Readers see all writes of the block, or none after an
    error."""
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("UPDATE state SET changes = changes + 1")


def update(run: Path, index: Path, last_step: int) -> Iterator[Json]:
    """Bring the index of a run up to date with its files. Yield the progress in bytes after each file that was read.

    `last_step` is the training step of the final evaluation. Raises UserError at the end if a file could not be read.
    """
    files = {str(file.path.relative_to(run)): file for file in rollout_files(run, last_step)}
    stamps, total, problem = {path: _stamp(file) for path, file in files.items()}, 0, None
    total = sum(size for _, size in stamps.values())
    with connect(index) as connection:
        known = dict(connection.execute("SELECT path, stamp FROM files").fetchall())
        for path in known.keys() - files.keys():
            with change(connection):
                _forget(connection, path)
        # Read the newest steps first, because users look at these while the rest is read.
        for path, file in sorted(files.items(), key=lambda item: (item[1].name == TRAIN, -item[1].step)):
            if stamps[path][0] in ("", known.get(path)):  # deleted, or already read
                continue
            try:
                with change(connection):
                    _read(connection, path, file, stamps[path])
            except (UserError, OSError) as error:  # a pipe or a deleted file; the other files are still read
                problem = problem or UserError(str(error))
            (done,) = connection.execute("SELECT coalesce(sum(size), 0) FROM files").fetchone()
            yield {"done_bytes": min(done, total), "total_bytes": total}
    if problem:
        raise problem


def _stamp(file: RolloutFile) -> tuple[str, int]:
    """Return a text that differs after each change of the file, and the file's size; an empty text and 0 if the file
    does not exist."""
    try:
        status = file.path.stat()
    except OSError:
        return "", 0
    return f"{file.step} {status.st_ino} {status.st_mtime_ns} {status.st_size}", status.st_size


def _forget(connection: sqlite3.Connection, path: str) -> None:
    for (file,) in connection.execute("SELECT id FROM files WHERE path = ?", (path,)).fetchall():
        for table in ("rollouts", "texts"):
            connection.execute(f"DELETE FROM {table} WHERE id BETWEEN ? AND ?", (file << 32, (file + 1 << 32) - 1))
        connection.execute("DELETE FROM groups WHERE file = ?", (file,))
        connection.execute("DELETE FROM files WHERE id = ?", (file,))


def _read(connection: sqlite3.Connection, path: str, file: RolloutFile, stamp: tuple[str, int]) -> None:
    """Read a file, and replace its rollouts in the index. Do nothing if another process has already read the file in
    this state."""
    if connection.execute("SELECT 1 FROM files WHERE (path, stamp) = (?, ?)", (path, stamp[0])).fetchone():
        return
    _forget(connection, path)
    row = (path, file.name, file.step, *stamp)
    number = connection.execute(
        "INSERT INTO files (path, name, step, stamp, size) VALUES (?, ?, ?, ?, ?)", row
    ).lastrowid
    assert number is not None
    lines = damaged = 0
    with open_regular(file.path) as raw, io.BufferedReader(raw) as opened:
        found = _rows(opened, file, number)
        while rows := [*islice(found, BATCH)]:
            lines += len(rows)
            whole = [one for one in rows if one]
            damaged += len(rows) - len(whole)
            connection.executemany("INSERT INTO texts VALUES (:id, :text)", whole)
            names = [name for name in (whole[0] if whole else ()) if name not in ("text", "draw")]
            columns, values = ", ".join(f'"{name}"' for name in names), ", ".join(f":{name}" for name in names)
            if whole:
                connection.executemany(f"INSERT INTO rollouts ({columns}) VALUES ({values})", whole)
    connection.execute(GROUPS, (number,))
    connection.execute(SIGNALS, (number,))
    connection.execute("UPDATE files SET lines = ?, damaged = ? WHERE id = ?", (lines, damaged, number))


def _rows(opened: IO[bytes], file: RolloutFile, number: int) -> Iterator[Json]:
    begin = 0
    for line, raw in enumerate(opened):
        if not raw.endswith(b"\n"):  # the line is still incomplete
            return
        try:
            row = read_line(raw)
        except ValueError:
            yield {}
        else:
            # A step may draw a task more than once.
            draw, role = f"@{row['draw']}" if row["draw"] >= 0 else "", f" ({row['role']})" if row["role"] else ""
            # A task's name in an evaluation starts with the name of its environment.
            environment = row["environment"] or row["task"].partition("/")[0]
            row |= {"environment": environment, "grp": f"{file.step}/{row['task']}{draw}{role}"}
            row |= {"id": (number << 32) + line, "file": number, "held_out": file.name != TRAIN, "step": file.step}
            yield row | {"line": line, "begin": begin, "size": len(raw) - 1}
        begin += len(raw)
