"""Brings the index of a run up to date with its files, a part at a time, while others read it.

A damaged line is counted and skipped. Lines that are gone from the files are deleted from the index.
"""

import json
import sqlite3
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

from filelock import FileLock

from slimrl.errors import UserError
from slimrl_view.growing import Part, Place, new_parts
from slimrl_view.index import change, connect
from slimrl_view.lines import read_line
from slimrl_view.runs import TRAIN, RolloutFile, rollout_files

Json = dict[str, Any]


def update(run: Path, index: Path, last_step: int, environment: str) -> Iterator[Json]:
    """Add the new lines of the run's files to the index. Yield the progress after each part.

    `last_step` is the step of the final evaluation. `environment` is the environment of all training tasks, empty if
    there are several; older files do not have it. Raises filelock.Timeout, before any change, while another process
    does the same. Finally raises UserError if a file could not be read.
    """
    with FileLock(index.with_suffix(".lock"), timeout=0), connect(index) as connection:
        files = {str(file.path.relative_to(run)): file for file in rollout_files(run, last_step)}
        _forget_others(connection, files)
        total, problem = sum(map(_size, files.values())), None
        # The newest steps first, because people look for these while the rest is read.
        for path, file in sorted(files.items(), key=lambda item: (item[1].name == TRAIN, -item[1].step)):
            place = connection.execute(
                "SELECT inode, mtime_ns, end, mark FROM files WHERE path = ?", (path,)
            ).fetchone()
            try:
                for part in new_parts(file.path, Place(*place or ())):
                    with change(connection):
                        _write(connection, path, file, part, environment)
                    yield _progress(connection, total)
            except UserError as error:  # a pipe or an unreadable file, for example; the other files are still read
                problem = problem or error
        if problem:
            raise problem


def progress(run: Path, index: Path) -> Json | None:
    """Return the numbers of indexed bytes and of all bytes of a run's files; None if they are equal."""
    with connect(index) as connection:
        found = _progress(connection, sum(_size(file) for file in rollout_files(run)))
    return found if found["done_bytes"] < found["total_bytes"] else None


def _progress(connection: sqlite3.Connection, total: int) -> Json:
    (done,) = connection.execute("SELECT coalesce(sum(end), 0) FROM files").fetchone()
    return {"done_bytes": min(done, total), "total_bytes": total}


def _forget_others(connection: sqlite3.Connection, files: Mapping[str, RolloutFile]) -> None:
    """Remove files that are gone, and a file whose step has changed."""
    for row in connection.execute("SELECT id, path, step FROM files").fetchall():
        if row["path"] not in files or files[row["path"]].step != row["step"]:
            with change(connection):
                _clear(connection, row["id"])
                connection.execute("DELETE FROM files WHERE id = ?", (row["id"],))


def _write(connection: sqlite3.Connection, path: str, file: RolloutFile, part: Part, environment: str) -> None:
    """Write the lines of a part, and the place after it."""
    connection.execute("INSERT OR IGNORE INTO files (path, name, step) VALUES (?, ?, ?)", (path, file.name, file.step))
    number, lines, damaged = connection.execute(
        "SELECT id, lines, damaged FROM files WHERE path = ?", (path,)
    ).fetchone()
    if part.is_first:
        _clear(connection, number)
        lines = damaged = 0
    rows = []
    for line, (begin, raw) in enumerate(part.lines, lines):
        try:
            row = read_line(raw)
        except ValueError:
            damaged += 1
            continue
        # A step may draw a task more than once.
        draw, role = row.pop("draw"), f" ({row['role']})" if row["role"] else ""
        row["grp"] = f"{file.step}/{row['task']}{f'@{draw}' if draw >= 0 else ''}{role}"
        # A task's name in an evaluation starts with the name of its environment.
        row["environment"] = row["environment"] or (
            environment if file.name == TRAIN else row["task"].partition("/")[0]
        )
        row |= {"id": (number << 32) + line, "file": number, "held_out": file.name != TRAIN, "step": file.step}
        rows.append(row | {"line": line, "begin": begin, "size": len(raw), "zero_signal": row["flat"]})
    connection.executemany("INSERT INTO texts VALUES (:id, :text)", rows)
    for row in rows:
        del row["text"]
    if rows:
        names, values = ", ".join(f'"{name}"' for name in rows[0]), ", ".join(f":{name}" for name in rows[0])
        connection.executemany(f"INSERT INTO rollouts ({names}) VALUES ({values})", rows)
    for group in {row["grp"] for row in rows}:
        _write_group(connection, number, group)
    connection.execute(
        "UPDATE files SET lines = ?, damaged = ?, inode = ?, mtime_ns = ?, end = ?, mark = ? WHERE id = ?",
        (lines + len(part.lines), damaged, *astuple(part.place), number),
    )


def _clear(connection: sqlite3.Connection, file: int) -> None:
    for table in ("rollouts", "texts"):
        connection.execute(f"DELETE FROM {table} WHERE id BETWEEN ? AND ?", (file << 32, (file + 1 << 32) - 1))
    connection.execute("DELETE FROM groups WHERE file = ?", (file,))


def _write_group(connection: sqlite3.Connection, file: int, group: str) -> None:
    """Compute the numbers of a group again, after rollouts were added."""
    rows = connection.execute(
        'SELECT held_out, step, task, reward, advantage, flat, "drop", prompt FROM rollouts '
        "WHERE file = ? AND grp = ? ORDER BY line",
        (file, group),
    ).fetchall()
    # A group has no signal if some of its rollouts have advantages, and all of these are without signal.
    flat = [row["flat"] for row in rows if row["advantage"] is not None]
    zero = int(bool(flat) and all(flat))
    rewards = [row["reward"] for row in rows]
    numbers = _numbers([reward for reward in rewards if reward is not None])
    counts = (len(rows), sum(bool(row["drop"]) for row in rows))
    connection.execute(
        f"INSERT OR REPLACE INTO groups VALUES ({', '.join('?' * 14)})",
        (file, group, *rows[0][:3], *counts, *numbers, zero, json.dumps(rewards), rows[0]["prompt"]),
    )
    connection.execute("UPDATE rollouts SET zero_signal = ? WHERE file = ? AND grp = ?", (zero, file, group))


def _numbers(rewards: Sequence[float]) -> tuple[float | None, ...]:
    """Return the mean, the smallest, the largest and the spread of some rewards; None if a value is not a float."""
    if not rewards:
        return (None,) * 4
    try:
        mean, spread = statistics.fmean(rewards), statistics.pstdev(rewards)
    except OverflowError:  # the sum of the rewards or their squares is too large
        return None, min(rewards), max(rewards), None
    return mean, min(rewards), max(rewards), spread


def _size(file: RolloutFile) -> int:
    try:
        return file.path.stat().st_size
    except OSError:
        return 0
