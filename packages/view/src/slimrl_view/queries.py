"""Answers questions about a run's rollouts from its index: which there are, and in which groups. Opens nothing else."""

import json
import sqlite3
from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from slimrl.errors import UserError
from slimrl_view.conditions import Clause, order_of_groups, order_of_rollouts, where_clause
from slimrl_view.index import connect
from slimrl_view.runs import HELD_OUT, TRAIN, stage_of

MAX_LIMIT = 5000
Item = TypeVar("Item")
BATCH = 500  # values of one question; old versions of SQLite take a thousand at most
KEPT_RESULTS = 8  # of searches, so that turning a page searches nothing
MAX_TASK_ROWS = 2000
MAX_GROUP_ROWS = 5000
FACETS = ("drop", "environment", "stop", "role")
Json = dict[str, Any]


class Missing(UserError):
    """A run, a rollout, a group or a file that was asked for and is not there."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What the page asks for: conditions, order, page and file."""

    where: str = ""
    sort: str = ""
    offset: int = 0
    limit: int = 50
    file: str = TRAIN


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rollout's line is: the file below the run's directory, and the bytes of the line in it."""

    path: str
    begin: int
    size: int
    row: Json


class Index:
    """The index of one run, for reading. It may be used by several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._results: OrderedDict[tuple[Any, ...], array[int]] = OrderedDict()
        self._lock = Lock()

    def counts(self) -> Json:
        """How many rollouts there are, and how many lines were damaged: `rollouts`, `held_out`, `damaged`."""
        with connect(self.path) as connection:
            rows = connection.execute(
                "SELECT name = ?, sum(lines - damaged), sum(damaged) FROM files GROUP BY 1", (TRAIN,)
            ).fetchall()
        numbers = {bool(is_train): num for is_train, num, _ in rows}
        damaged = sum(row[2] for row in rows)
        return {"rollouts": numbers.get(True, 0), "held_out": numbers.get(False, 0), "damaged": damaged}

    def empty_evaluations(self) -> list[str]:
        """The evaluations of whose files the index has read all, and found no line in it."""
        with connect(self.path) as connection:
            sql = "SELECT name FROM files WHERE name != ? AND lines = 0 AND inode ORDER BY name"
            found = connection.execute(sql, (TRAIN,)).fetchall()
        return [name.removeprefix(f"{HELD_OUT}/") for (name,) in found]

    def files(self) -> Json:
        """The steps that have rollouts, and the evaluations with the number of their episodes."""
        with connect(self.path) as connection:
            steps = connection.execute("SELECT step FROM files WHERE name = ? AND lines ORDER BY step", (TRAIN,))
            train = {"steps": [step for (step,) in steps]}
            found = connection.execute("SELECT name, lines - damaged FROM files WHERE name != ?", (TRAIN,)).fetchall()
        held_out = [(name.removeprefix(f"{HELD_OUT}/"), num) for name, num in found]
        return {"train": train, "held_out": sorted(held_out, key=lambda one: (*stage_of(one[0]), one[0]))}

    def rollouts(self, selection: Selection, with_facets: bool = False) -> Json:
        """A page of the rollouts that meet the conditions, in order."""
        where, order = where_clause(selection.where), order_of_rollouts(selection.sort)
        with connect(self.path) as connection:
            scope = _scope(connection, selection.file)
            ids = self._ids(connection, ("rollouts", scope, where, order))
            page = ids[selection.offset : selection.offset + selection.limit]
            total = connection.execute(f"SELECT count(*) FROM rollouts WHERE {scope.sql}", scope.values).fetchone()[0]
            answer: Json = {"total": total, "matched": len(ids), "rows": _rows(connection, page)}
            if with_facets:
                answer["facets"] = _facets(connection, ids, total, scope)
            return answer

    def groups(self, selection: Selection) -> Json:
        """A page of the groups that have a rollout that meets the conditions, in order."""
        where, order = where_clause(selection.where), order_of_groups(selection.sort)
        with connect(self.path) as connection:
            scope = _scope(connection, selection.file)
            matching = "1"
            if where.sql != "1":
                matching = f"(file, grp) IN (SELECT file, grp FROM rollouts WHERE {scope.sql} AND {where.sql})"
                where = Clause(matching, (*scope.values, *where.values))
            rows = connection.execute(
                f"SELECT * FROM groups WHERE {scope.sql} AND {where.sql} ORDER BY {order.sql}",
                (*scope.values, *where.values, *order.values),
            ).fetchall()
            total = connection.execute(f"SELECT count(*) FROM groups WHERE {scope.sql}", scope.values).fetchone()[0]
        page = rows[selection.offset : selection.offset + selection.limit]
        return {"total": total, "matched": len(rows), "groups": [_group(row) for row in page]}

    def group(self, name: str, file: str) -> Json:
        """The rollouts of a group, with their metrics. Raises Missing if there is none of this name."""
        with connect(self.path) as connection:
            scope = _scope(connection, file)
            rows = connection.execute(
                f"{_SELECT} WHERE grp = ? AND {_of_rollouts(scope)} ORDER BY file, line LIMIT {MAX_GROUP_ROWS}",
                (name, *scope.values),
            ).fetchall()
        if not rows:
            raise Missing(f"there is no group {name!r:.200} in {file}.")
        found = [_row(row) | {"metrics": json.loads(row["metrics"])} for row in rows]
        return {"rows": found, "metric_names": sorted({name for row in found for name in row["metrics"]})}

    def task(self, task: str) -> Json:
        """All rollouts of a task, of all steps and evaluations."""
        with connect(self.path) as connection:
            rows = connection.execute(
                f"{_SELECT} WHERE task = ? ORDER BY rollouts.step, file, line LIMIT {MAX_TASK_ROWS}", (task,)
            ).fetchall()
        return {"rows": [_row(row) for row in rows]}

    def place(self, key: str) -> Place:
        """Where the rollout of a key is. Raises Missing if there is none."""
        name, _, rest = key.partition(":")
        step, _, line = rest.partition(":")
        if not (step + line).isascii() or not step.isdecimal() or not line.isdecimal() or len(step + line) > 24:
            raise Missing(f"there is no rollout {key!r:.200}: a key is FILE:STEP:LINE, such as train:12:3.")
        with connect(self.path) as connection:
            row = connection.execute(
                f"{_SELECT} WHERE files.name = ? AND files.step = ? AND line = ?", (name, int(step), int(line))
            ).fetchone()
        if row is None:
            raise Missing(f"there is no rollout {key!r:.200} in this run.")
        return Place(row["path"], row["begin"], row["size"], _row(row))

    def evaluation(self, name: str) -> dict[str, Json]:
        """The rollouts of an evaluation by their tasks. Raises Missing if there is no evaluation of this name."""
        with connect(self.path) as connection:
            scope = _scope(connection, f"{HELD_OUT}/{name}")
            rows = connection.execute(f"{_SELECT} WHERE {_of_rollouts(scope)} ORDER BY line", scope.values).fetchall()
        return {row["task"]: _row(row) for row in rows}

    def sample(self, max_rollouts: int) -> tuple[list[Json], int]:
        """Rollouts with their metrics, and how many were left out: at most so many of the training and as many of
        evaluations, in whole groups, spread evenly over the steps of the training."""
        with connect(self.path) as connection:
            counted = "SELECT file, grp, num, held_out FROM groups ORDER BY held_out, step, file, grp"
            groups = connection.execute(counted).fetchall()
            kept: list[sqlite3.Row] = []
            for held_out in (0, 1):
                kept += _spread([group for group in groups if group["held_out"] == held_out], max_rollouts)
            rows = [
                _row(row) | {"metrics": json.loads(row["metrics"])}
                for file, group, *_ in kept
                for row in connection.execute(f"{_SELECT} WHERE file = ? AND grp = ? ORDER BY line", (file, group))
            ]
        return rows, sum(group["num"] for group in groups) - len(rows)

    def _ids(self, connection: sqlite3.Connection, question: tuple[str, Clause, Clause, Clause]) -> "array[int]":
        """The ids of all rollouts that meet the conditions, in order, from the last searches if they are known."""
        _, scope, where, order = question
        key = (connection.execute("SELECT changes FROM state").fetchone()[0], *question)
        with self._lock:
            if known := self._results.get(key):
                self._results.move_to_end(key)
                return known
        values = (*scope.values, *where.values, *order.values)
        found = connection.execute(
            f"SELECT id FROM rollouts WHERE {scope.sql} AND {where.sql} ORDER BY {order.sql}", values
        )
        ids = array("q", (row[0] for row in found))
        with self._lock:
            self._results[key] = ids
            while len(self._results) > KEPT_RESULTS:
                self._results.popitem(last=False)
        return ids


_SELECT = "SELECT rollouts.*, files.name, files.path FROM rollouts JOIN files ON files.id = rollouts.file"


def pair_up(left: dict[str, Json], right: dict[str, Json]) -> Json:
    """Two evaluations task by task, and in how many the right one earned more, less or as much."""
    pairs = [{"task": t, "left": left.get(t), "right": right.get(t)} for t in dict.fromkeys([*left, *right])]
    both = [(left[t]["reward"], right[t]["reward"]) for t in left if t in right]
    gains = [b - a for a, b in both if a is not None and b is not None]
    counts = {"better": sum(g > 0 for g in gains), "worse": sum(g < 0 for g in gains)}
    return {"pairs": pairs, **counts, "same": len(gains) - sum(counts.values())}


def _scope(connection: sqlite3.Connection, file: str) -> Clause:
    """The condition that a rollout is of the training, or of an evaluation. Raises Missing for an unknown file."""
    if file == TRAIN:
        return Clause("held_out = 0")
    found = connection.execute("SELECT id FROM files WHERE name = ?", (file,)).fetchone()
    if found is None:
        names = [name for (name,) in connection.execute("SELECT name FROM files WHERE name != ? ORDER BY 1", (TRAIN,))]
        raise Missing(f"there is no file {file!r:.200} in this run. Known: {', '.join([TRAIN, *names])}.")
    return Clause("file = ?", (found["id"],))


def _of_rollouts(scope: Clause) -> str:
    return f"rollouts.{scope.sql}"


def _rows(connection: sqlite3.Connection, ids: Sequence[int]) -> list[Json]:
    found: dict[int, Json] = {}
    for some in batches(ids, BATCH):
        marks = ", ".join("?" * len(some))
        found |= {
            row["id"]: _row(row) for row in connection.execute(f"{_SELECT} WHERE rollouts.id IN ({marks})", [*some])
        }
    return [found[one] for one in ids if one in found]


def _row(row: sqlite3.Row) -> Json:
    return {
        "key": f"{row['name']}:{row['step']}:{row['line']}",
        "file": row["name"],
        "group": row["grp"],
        **{name: row[name] for name in _PLAIN},
    }


_PLAIN = (
    *("step", "line", "task", "environment", "role", "reward", "advantage", "drop", "stop"),
    *("turns", "tokens", "tool_calls", "zero_signal", "version", "excerpt", "prompt"),
)


def _spread(groups: Sequence[sqlite3.Row], most: int) -> list[sqlite3.Row]:
    """As many of the groups as have no more rollouts than `most` together, taken at even distances."""
    total = sum(group["num"] for group in groups)
    if total <= most:
        return [*groups]
    num = most * len(groups) // total
    kept = [groups[place * len(groups) // num] for place in range(num)]
    while sum(group["num"] for group in kept) > most:  # they may differ in size
        kept.pop()
    return kept


def _group(row: sqlite3.Row) -> Json:
    names = ("step", "task", "num", "dropped", "mean", "min", "max", "std", "zero_signal", "prompt")
    return {"group": row["grp"], **{name: row[name] for name in names}, "rewards": json.loads(row["rewards"])}


def _facets(connection: sqlite3.Connection, ids: Sequence[int], total: int, scope: Clause) -> Json:
    """How many of the rollouts have each value of the fields that have few."""
    counts = {field: Counter[str]() for field in FACETS}
    fields = ", ".join(map(_quote, FACETS))
    if len(ids) == total:
        counted = [(scope.sql, scope.values)]
    else:
        counted = [(f"id IN ({', '.join('?' * len(some))})", tuple(some)) for some in batches(ids, BATCH)]
    for condition, values in counted:
        for *found, num in connection.execute(
            f"SELECT {fields}, count(*) FROM rollouts WHERE {condition} GROUP BY {fields}", values
        ):
            for field, value in zip(FACETS, found, strict=True):
                counts[field][value] += num
    return {field: dict(counted) for field, counted in counts.items()}


def batches(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """The items in parts of a size."""
    return (items[begin : begin + size] for begin in range(0, len(items), size))


def _quote(name: str) -> str:
    return f'"{name}"'
