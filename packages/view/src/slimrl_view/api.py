"""Answers the page's requests by path; each answer is a value for JSON.

Runs, rollouts, groups and evaluations are looked up by their names in the index; a name from the page is never used as
the path of a file.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any
from urllib.parse import unquote

from slimrl.errors import UserError, nearest
from slimrl.plugins import REFERENCES, load, names
from slimrl_view.about import describe
from slimrl_view.curves import registry
from slimrl_view.detail import read_rollout
from slimrl_view.queries import MAX_LIMIT, Missing, Selection, pair_up
from slimrl_view.runs import TRAIN
from slimrl_view.shown import Run

Query = Mapping[str, str]
PREFIX = "/api/"
DIGITS = 6


class Api:
    """Answers requests about a list of runs."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = {run.directory.id: run for run in runs}
        self._whole: dict[str, Callable[[Query], Any]] = {
            "state": lambda query: self._state(),
            "runs": lambda query: [describe(run.directory, run.curves) for run in self._runs.values()],
            "registry": lambda query: registry(),
            "held_out_pairs": self._pair_evaluations,
        }
        self._of_run: dict[str, Callable[[Run, Query], Any]] = {
            "metrics": lambda run, query: run.curves.since(_number(query, "since")),
            "monitors": lambda run, query: {"alarms": _alarms(run)},
            "watched": lambda run, query: {"monitors": run.monitors.all()},
            "reference": lambda run, query: _reference(run),
            "files": lambda run, query: run.index.files(),
            "rollouts": lambda run, query: run.index.rollouts(_selection(query), query.get("facets") == "1"),
            "groups": lambda run, query: run.index.groups(_selection(query)),
            "group": lambda run, query: run.index.group(_require(query, "group"), query.get("file", TRAIN)),
            "rollout": lambda run, query: _rollout(run, _require(query, "key")),
            "task": lambda run, query: run.index.task(_require(query, "task")),
        }

    def answer(self, path: str, query: Query) -> Any:
        """Return the answer to a request. Raises Missing for an unknown name, and UserError for a wrong request."""
        words = path.removeprefix(PREFIX).split("/")
        if len(words) == 1 and words[0] in self._whole:
            return to_json(self._whole[words[0]](query))
        if len(words) == 3 and words[0] == "runs" and words[2] in self._of_run:
            return to_json(self._of_run[words[2]](self.run(unquote(words[1])), query))
        known = [*self._whole, *(f"runs/ID/{name}" for name in self._of_run)]
        raise Missing(f"there is no {path!r:.200}. Known: {', '.join(known)}.")

    def run(self, name: str) -> Run:
        """Return the run with this name. Raises Missing if it is unknown."""
        if name not in self._runs:
            raise Missing(f"there is no run {name!r:.200}.{nearest(name[:200], self._runs)}")
        return self._runs[name]

    def _state(self) -> dict[str, Any]:
        runs = []
        for name, run in self._runs.items():
            numbers = {"metrics": run.curves.num_lines(), **run.index.counts(), "monitors": len(_alarms(run))}
            runs.append({"id": name, **numbers, "indexing": run.progress, "problem": run.problem})
        return {"version": version("slimrl"), "runs": runs}

    def _pair_evaluations(self, query: Query) -> dict[str, Any]:
        sides = []
        for side in ("left", "right"):
            name, _, evaluation = _require(query, side).partition("/")
            sides.append(self.run(name).index.evaluation(evaluation))
        return pair_up(*sides)


def to_json(value: Any) -> Any:
    """Return the value with each float rounded to six significant digits. Whole floats become integers, and non-finite
    floats become None."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return int(value) if value.is_integer() and abs(value) < 2**53 else float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: to_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(inner) for inner in value]
    return value


def _alarms(run: Run) -> list[dict[str, Any]]:
    with run.alarms.read() as alarms:
        return list(alarms)


def _rollout(run: Run, key: str) -> dict[str, Any]:
    return read_rollout(run.directory.path, run.index.place(key))


def _reference(run: Run) -> dict[str, Any] | None:
    found = (load(REFERENCES, name, "the reference")(run.directory.path) for name in names(REFERENCES))
    return next((curves for curves in found if curves), None)


def _selection(query: Query) -> Selection:
    limit = _number(query, "limit")
    if limit is not None and limit > MAX_LIMIT:
        raise UserError(f"`limit` is at most {MAX_LIMIT}.")
    return Selection(
        query.get("where", ""),
        query.get("sort", ""),
        _number(query, "offset") or 0,
        50 if limit is None else limit,
        query.get("file", TRAIN),
    )


def _number(query: Query, name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    if not re.fullmatch(r"\d{1,15}", text, re.ASCII):
        raise UserError(f"`{name}` must be a whole number, and is {text!r:.80}.")
    return int(text)


def _require(query: Query, name: str) -> str:
    if name not in query:
        raise UserError(f"`{name}` is missing in the query.")
    return query[name]
