"""Brings the index of a run up to date with its files, a part at a time, while others read it.

A file is read from where it was left. An incomplete last line waits for its end; a damaged line is counted and passed
over. A file that has become shorter, or another one, as after a resume, is read anew, and what is gone is forgotten.
"""

import io
import json
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from slimrl.errors import UserError
from slimrl.io.regular_file import open_regular
from slimrl_view.index import change, connect
from slimrl_view.lines import Line, read_line
from slimrl_view.runs import TRAIN, RolloutFile, rollout_files

PART_BYTES = 4 * 2**20  # read and written in one go
MAX_LINE_BYTES = 256 * 2**20  # a longer one is not a rollout
MARK_BYTES = 256  # before the place where reading goes on, by which a file is known again


@dataclass(frozen=True, slots=True)
class Progress:
    """How much of a run's files is in the index, and how fast that grows."""

    done_bytes: int
    total_bytes: int
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Known:
    """What the files of rollouts do not say themselves: the environment of the training's tasks, empty if there are
    several, and the step of the evaluation at the end."""

    environment: str = ""
    last_step: int = 0


def update(
    run: Path, index: Path, known: Known, report: Callable[[Progress], None], stopped: Callable[[], bool]
) -> bool:
    """Add to the index what is new in the run's files, until `stopped`. Returns False, with nothing done, while another
    process does the same. Raises UserError at the end if a file could not be read."""
    lock = FileLock(index.with_suffix(".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    try:
        with connect(index) as connection:
            files = [*rollout_files(run, known.last_step)]
            _Update(connection, known.environment, report, stopped).run(files, run)
    finally:
        lock.release()
    return True


def progress_of_another(run: Path, index: Path) -> Progress | None:
    """How much of a run's files another process has read into the index; None if that is all of them."""
    with connect(index) as connection:
        (done,) = connection.execute("SELECT coalesce(sum(done), 0) FROM files").fetchone()
    total = sum(_size(file.path) for file in rollout_files(run))
    return Progress(done, total, 0.0) if done < total else None


@dataclass(frozen=True, slots=True)
class _State:
    """What the index knows of a file: where reading goes on, and by what the file is known again."""

    id: int
    inode: int
    mtime: float
    done: int
    lines: int
    mark: bytes


class _Update:
    """One pass over a run's files."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        environment: str,
        report: Callable[[Progress], None],
        stopped: Callable[[], bool],
    ) -> None:
        self._connection = connection
        self._environment = environment
        self._report = report
        self._stopped = stopped
        self._began, self._num_read = time.monotonic(), 0
        self._names = {name for (name,) in connection.execute("SELECT name FROM metric_names")}

    def run(self, files: Sequence[RolloutFile], run: Path) -> None:
        paths = {str(file.path.relative_to(run)): file for file in files}
        known = {row["path"]: row for row in self._connection.execute("SELECT * FROM files")}
        for path, row in known.items():
            if path not in paths or paths[path].step != row["step"]:
                self._forget(row["id"], path)
        sizes = {path: _size(file.path) for path, file in paths.items()}
        done, total, problem = 0, sum(sizes.values()), None
        # The newest steps first: that is what a person looks for while the rest is read.
        for path, file in sorted(paths.items(), key=lambda item: (item[1].name == TRAIN, -item[1].step)):
            try:
                for num_bytes in self._file(path, file):
                    rate = self._num_read / max(1e-3, time.monotonic() - self._began)
                    self._report(Progress(min(done + num_bytes, total), total, rate))
                    if self._stopped():
                        return
            except UserError as error:  # such as a pipe, or a file that must not be read: the others can be
                problem = problem or error
            done += sizes[path]
        if problem:
            raise problem

    def _file(self, path: str, file: RolloutFile) -> Iterator[int]:
        """Read a file from where it was left; yields how far it is read after each part."""
        try:
            status = file.path.stat()
        except OSError:  # it was removed just now
            return
        state = self._state(path, file)
        if (status.st_ino, status.st_mtime) == (state.inode, state.mtime) and status.st_size == state.done:
            return
        with open_regular(file.path) as opened:
            if state.inode not in (0, status.st_ino) or _mark(opened, state.done) != state.mark:
                self._forget(state.id, path)
                state = self._state(path, file)
            number, identity = state.lines, (status.st_ino, status.st_mtime)
            begin = state.done
            for lines, end in _parts(opened, begin):
                self._write(file, _Part(state.id, number, lines, end, identity, _mark(opened, end)))
                self._num_read += end - begin
                begin, number = end, number + len(lines)
                yield end
            if number == 0 and (state.inode, state.mtime) != identity:  # it has been read, and has no whole line
                self._write(file, _Part(state.id, 0, (), begin, identity, b""))

    def _state(self, path: str, file: RolloutFile) -> _State:
        found = self._connection.execute("SELECT * FROM files WHERE path = ?", (path,)).fetchone()
        if found is None:
            values = (path, file.name, file.step)
            self._connection.execute("INSERT INTO files VALUES (NULL, ?, ?, ?, 0, 0, 0, 0, 0, x'')", values)
            return self._state(path, file)
        return _State(found["id"], found["inode"], found["mtime"], found["done"], found["lines"], found["mark"])

    def _forget(self, file: int, path: str) -> None:
        with change(self._connection):
            self._connection.execute("DELETE FROM texts WHERE id IN (SELECT id FROM rollouts WHERE file = ?)", (file,))
            for table in ("rollouts", "groups"):
                self._connection.execute(f"DELETE FROM {table} WHERE file = ?", (file,))
            self._connection.execute("DELETE FROM files WHERE path = ?", (path,))

    def _write(self, file: RolloutFile, part: "_Part") -> None:
        """Add the lines of a part, and where it ends, in one transaction."""
        rows, texts, damaged = [], [], 0
        (last,) = self._connection.execute("SELECT coalesce(max(id), 0) FROM rollouts").fetchone()
        for number, (begin, raw) in enumerate(part.lines, part.number):
            try:
                line = read_line(raw)
            except ValueError:
                damaged += 1
            else:
                last += 1
                rows.append((last, part.file, file.name != TRAIN, number, begin, len(raw), *self._cells(file, line)))
                texts.append((last, line.text))
        connection = self._connection
        with change(connection):
            connection.executemany(f"INSERT INTO rollouts VALUES ({', '.join('?' * 24)})", rows)
            connection.executemany("INSERT INTO texts VALUES (?, ?)", texts)
            _write_groups(connection, part.file, {row[10] for row in rows})
            connection.executemany("INSERT OR IGNORE INTO metric_names VALUES (?)", [(name,) for name in self._names])
            connection.execute(
                "UPDATE files SET inode = ?, mtime = ?, done = ?, lines = ?, damaged = damaged + ?, mark = ? "
                "WHERE id = ?",
                (*part.identity, part.end, part.number + len(part.lines), damaged, part.mark, part.file),
            )

    def _cells(self, file: RolloutFile, line: Line) -> tuple[object, ...]:
        """The columns of a rollout from `step` on."""
        self._names |= json.loads(line.metrics).keys()
        # The tasks of an evaluation have their environment's name in front.
        of_file = self._environment if file.name == TRAIN else line.task.partition("/")[0]
        environment = line.environment or of_file
        # A step may draw a task more than once.
        draw = f"@{line.draw}" if line.draw >= 0 else ""
        group = f"{file.step}/{line.task}{draw}" + (f" ({line.role})" if line.role else "")
        return (
            *(file.step, line.task, environment, line.role, group, line.reward, line.advantage, line.drop, line.stop),
            *(
                line.turns,
                line.tokens,
                line.tool_calls,
                line.is_flat,
                line.is_flat,
                line.version,
                line.excerpt,
                line.prompt,
                line.metrics,
            ),
        )


@dataclass(frozen=True, slots=True)
class _Part:
    """Whole lines of a file, each with where it begins; the number of the first, and where the last ends."""

    file: int
    number: int
    lines: Sequence[tuple[int, bytes]]
    end: int
    identity: tuple[int, float]
    mark: bytes


def _parts(opened: io.FileIO, begin: int) -> Iterator[tuple[list[tuple[int, bytes]], int]]:
    """The whole lines of a file from a place on, some megabytes at a time, each with where it begins; and where the
    last of them ends. A line that is far too long comes as an empty one."""
    opened.seek(begin)
    rest, passed_over = b"", 0
    while chunk := opened.read(PART_BYTES):
        rest += chunk
        if cut := rest.rfind(b"\n") + 1:
            lines = []
            for raw in rest[: cut - 1].split(b"\n"):
                lines.append((begin, b"" if passed_over else raw))
                begin += passed_over + len(raw) + 1
                passed_over = 0
            yield lines, begin
            rest = rest[cut:]
        elif len(rest) > MAX_LINE_BYTES:
            passed_over, rest = passed_over + len(rest), b""


def _mark(opened: io.FileIO, end: int) -> bytes:
    """The last bytes before a place in a file. Where the file is read next stays as it is."""
    place = opened.tell()
    opened.seek(max(0, end - MARK_BYTES))
    found = opened.read(min(end, MARK_BYTES))
    opened.seek(place)
    return found


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _write_groups(connection: sqlite3.Connection, file: int, groups: set[str]) -> None:
    """Compute anew what is kept of the groups to which a part has added rollouts."""
    for group in groups:
        rows = connection.execute(
            'SELECT held_out, step, task, reward, advantage, flat, "drop", prompt FROM rollouts '
            "WHERE file = ? AND grp = ? ORDER BY line",
            (file, group),
        ).fetchall()
        # A group has no signal if some of its rollouts have advantages, and none of these had a signal.
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
    """The mean, the smallest, the largest and the spread of some rewards; None where there is no such float."""
    if not rewards:
        return (None,) * 4
    try:
        mean, spread = statistics.fmean(rewards), statistics.pstdev(rewards)
    except OverflowError:  # their sum is too large, or their squares are
        return None, min(rewards), max(rewards), None
    return mean, min(rewards), max(rewards), spread
