"""Answers requests about a run's rollouts and their groups from its index. Opens no other file."""

import json
import re
import sqlite3
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from slimrl.errors import UserError
from slimrl_view.conditions import Clause, order_of_groups, order_of_rollouts, where_clause
from slimrl_view.index import connect
from slimrl_view.runs import HELD_OUT, TRAIN, stage_of

MAX_LIMIT = 5000
KEPT_RESULTS = 8  # number of cached searches; the next page of results needs no new search
MAX_TASK_ROWS = 2000
MAX_GROUP_ROWS = 5000
FACETS = ("drop", "environment", "stop", "role")
COLUMNS = (
    *("step", "line", "task", "environment", "role", "reward", "advantage", "drop", "stop"),
    *("turns", "tokens", "tool_calls", "zero_signal", "version", "excerpt", "prompt"),
)
GROUP_COLUMNS = ("step", "task", "num", "dropped", "mean", "min", "max", "std", "zero_signal", "prompt")
SELECT = "SELECT rollouts.*, files.name, files.path FROM rollouts JOIN files ON files.id = rollouts.file"
Json = dict[str, Any]


class Missing(UserError):
    """A requested run, rollout, group or file does not exist."""


@dataclass(frozen=True, slots=True)
class Selection:
    """A request from the web page: conditions, order, range of results, and file."""

    where: str = ""
    sort: str = ""
    offset: int = 0
    limit: int = 50
    file: str = TRAIN


@dataclass(frozen=True, slots=True)
class Place:
    """The position of a rollout's line: the file's path within the run's directory, and the first byte and size of the
    line."""

    path: str
    begin: int
    size: int
    row: Json


class Index:
    """The index of one run, for reading. Several threads may use it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def counts(self) -> Json:
        """Return the numbers of rollouts and of damaged lines: `rollouts`, `held_out`, `damaged`."""
        counts = {"rollouts": 0, "held_out": 0, "damaged": 0}
        for name, _, lines, damaged in self._files():
            counts["rollouts" if name == TRAIN else "held_out"] += lines - damaged
            counts["damaged"] += damaged
        return counts

    def files(self) -> Json:
        """Return the steps that have rollouts, and the evaluations with the number of their episodes."""
        files = self._files()
        steps = sorted(step for name, step, lines, _ in files if name == TRAIN and lines)
        counts = {name.removeprefix(f"{HELD_OUT}/"): lines - bad for name, _, lines, bad in files if name != TRAIN}
        names = sorted(counts, key=lambda name: (*stage_of(name), name))
        held_out = [{"name": name, "num": counts[name]} for name in names]
        return {"train": {"steps": steps}, "held_out": held_out}

    def rollouts(self, selection: Selection, with_facets: bool = False) -> Json:
        """Return a page of the rollouts that meet the conditions, in order. With `with_facets`, add the number of
        rollouts for each value of the fields in `FACETS`."""
        where, order = where_clause(selection.where), order_of_rollouts(selection.sort)
        with connect(self.path) as connection:
            scope = _scope(connection, selection.file)
            (changes,) = connection.execute("SELECT changes FROM state").fetchone()
            ids = _matching_ids(self.path, changes, scope, where, order)
            (total,) = connection.execute(f"SELECT count(*) FROM rollouts WHERE {scope.sql}", scope.values).fetchone()
            page = json.dumps([*ids[selection.offset : selection.offset + selection.limit]])
            rows = connection.execute(
                f"{SELECT} JOIN json_each(?) AS page ON page.value = rollouts.id ORDER BY page.key", (page,)
            )
            answer: Json = {"total": total, "matched": len(ids), "rows": [*map(_row, rows)]}
            if with_facets:
                matching = scope
                if len(ids) < total:
                    matching = Clause("id IN (SELECT value FROM json_each(?))", (json.dumps([*ids]),))
                answer["facets"] = _facets(connection, matching)
            return answer

    def groups(self, selection: Selection) -> Json:
        """Return a page of the groups with at least one rollout that meets the conditions, in order."""
        where, order = where_clause(selection.where), order_of_groups(selection.sort)
        with connect(self.path) as connection:
            scope = _scope(connection, selection.file)
            matching = scope
            if where.sql != "1":
                inner = f"SELECT file, grp FROM rollouts WHERE {scope.sql} AND {where.sql}"
                matching = Clause(f"(file, grp) IN ({inner})", (*scope.values, *where.values))
            rows = connection.execute(
                f"SELECT * FROM groups WHERE {matching.sql} ORDER BY {order.sql}", (*matching.values, *order.values)
            ).fetchall()
            (total,) = connection.execute(f"SELECT count(*) FROM groups WHERE {scope.sql}", scope.values).fetchone()
        page = rows[selection.offset : selection.offset + selection.limit]
        return {"total": total, "matched": len(rows), "groups": [*map(_group, page)]}

    def group(self, name: str, file: str) -> Json:
        """Return the rollouts of a group. Raises Missing for an unknown name."""
        rows = self._select(f"grp = ? AND {{scope}} ORDER BY file, line LIMIT {MAX_GROUP_ROWS}", (name,), file)
        if not rows:
            raise Missing(f"there is no group {name!r:.200} in {file}.")
        return {"rows": [*map(_row, rows)]}

    def task(self, task: str) -> Json:
        """Return all rollouts of a task, from all steps and evaluations."""
        rows = self._select(f"task = ? ORDER BY rollouts.step, file, line LIMIT {MAX_TASK_ROWS}", (task,))
        return {"rows": [*map(_row, rows)]}

    def place(self, key: str) -> Place:
        """Return the position of the rollout with this key. Raises Missing for an unknown key."""
        found = re.fullmatch(r"([^:]+):(\d{1,12}):(\d{1,9})", key, re.ASCII)
        if not found:
            raise Missing(f"there is no rollout {key!r:.200}: a key is FILE:STEP:LINE, such as train:12:3.")
        condition = "rollouts.id = (files.id << 32) + ? AND files.name = ? AND files.step = ?"
        rows = self._select(condition, (int(found[3]), found[1], int(found[2])))
        if not rows:
            raise Missing(f"there is no rollout {key!r:.200} in this run.")
        return Place(rows[0]["path"], rows[0]["begin"], rows[0]["size"], _row(rows[0]))

    def evaluation(self, name: str) -> dict[str, Json]:
        """Return the rollouts of an evaluation, keyed by their tasks. Raises Missing for an unknown name."""
        rows = self._select("{scope} ORDER BY line", (), f"{HELD_OUT}/{name}")
        return {row["task"]: _row(row) for row in rows}

    def _files(self) -> list[tuple[str, int, int, int]]:
        with connect(self.path) as connection:
            found = connection.execute("SELECT name, step, lines, damaged FROM files ORDER BY name").fetchall()
        return [(row["name"], row["step"], row["lines"], row["damaged"]) for row in found]

    def _select(self, condition: str, values: Sequence[Any], file: str = "") -> list[sqlite3.Row]:
        """Return the rollouts that meet an SQL condition. `{scope}` in `condition` is replaced by the condition that
        the rollout is in `file`."""
        with connect(self.path) as connection:
            scope = _scope(connection, file) if file else Clause("1")
            sql = f"{SELECT} WHERE {condition.format(scope=f'rollouts.{scope.sql}')}"
            return connection.execute(sql, (*values, *scope.values)).fetchall()


def pair_up(left: dict[str, Json], right: dict[str, Json]) -> Json:
    """Return the rollouts of two evaluations in pairs of equal tasks, and the numbers of tasks with a higher
    (`better`), lower (`worse`) or equal (`same`) reward in `right`."""
    pairs = [{"task": t, "left": left.get(t), "right": right.get(t)} for t in dict.fromkeys([*left, *right])]
    both = [(left[t]["reward"], right[t]["reward"]) for t in left if t in right]
    gains = [b - a for a, b in both if a is not None and b is not None]
    counts = {"better": sum(g > 0 for g in gains), "worse": sum(g < 0 for g in gains)}
    return {"pairs": pairs, **counts, "same": len(gains) - sum(counts.values())}


@lru_cache(maxsize=KEPT_RESULTS)
def _matching_ids(path: Path, changes: int, scope: Clause, where: Clause, order: Clause) -> "array[int]":
    """Return the ids of all rollouts that meet the conditions, in order. `changes` identifies the index's state, for
    the cache of results."""
    sql = f"SELECT id FROM rollouts WHERE {scope.sql} AND {where.sql} ORDER BY {order.sql}"
    with connect(path) as connection:
        found = connection.execute(sql, (*scope.values, *where.values, *order.values))
        return array("q", (number for (number,) in found))


def _scope(connection: sqlite3.Connection, file: str) -> Clause:
    if file == TRAIN:
        return Clause("held_out = 0")
    found = connection.execute("SELECT id FROM files WHERE name = ?", (file,)).fetchone()
    if found is None:
        names = [name for (name,) in connection.execute("SELECT name FROM files WHERE name != ? ORDER BY 1", (TRAIN,))]
        raise Missing(f"there is no file {file!r:.200} in this run. Known: {', '.join([TRAIN, *names])}.")
    return Clause("file = ?", (found["id"],))


def _row(row: sqlite3.Row) -> Json:
    key = f"{row['name']}:{row['step']}:{row['line']}"
    return {"key": key, "file": row["name"], "group": row["grp"], **{name: row[name] for name in COLUMNS}}


def _group(row: sqlite3.Row) -> Json:
    rewards = json.loads(row["rewards"])
    return {"group": row["grp"], **{name: row[name] for name in GROUP_COLUMNS}, "rewards": rewards}


def _facets(connection: sqlite3.Connection, matching: Clause) -> dict[str, Counter[str]]:
    counts = {field: Counter[str]() for field in FACETS}
    fields = ", ".join(f'"{field}"' for field in FACETS)
    sql = f"SELECT {fields}, count(*) FROM rollouts WHERE {matching.sql} GROUP BY {fields}"
    for *values, num in connection.execute(sql, matching.values):
        for field, value in zip(FACETS, values, strict=True):
            counts[field][value] += num
    return counts
