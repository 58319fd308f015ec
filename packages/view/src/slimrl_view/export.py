"""Writes the page with the data of some runs as files that open from the disk, without a server.

Browsers fetch nothing there, so each file of data is a script that hands over a value: `slimrlData(KEY, VALUE)`. The
first, `manifest.js`, says which file has the answer to which question. All rollouts stand in one index, which the page
filters itself, and their details in files of a hundred.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slimrl.errors import UserError
from slimrl.io.checksums import new_directory
from slimrl.io.files import explain_write_errors
from slimrl_view.api import PREFIX, Api, to_json
from slimrl_view.detail import read_rollout
from slimrl_view.indexer import Run
from slimrl_view.server import STATIC

DETAILS_PER_FILE = 100
ANSWERS = ("runs", "registry")
ANSWERS_OF_A_RUN = ("metrics", "monitors", "watched", "reference", "files")
SERVED, EXPORTED = '<html lang="en" data-source="http">', '<html lang="en" data-source="static">'
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: how many rollouts and bytes, and what was left out, in words."""

    num_rollouts: int
    num_bytes: int
    note: str


def export(runs: Sequence[Run], directory: Path, max_rollouts: int) -> Exported:
    """Write the page and the data of the runs, each with at most `max_rollouts` rollouts of the training and as many of
    evaluations. An earlier export in the directory is replaced.

    Raises UserError if something else is there, or if it cannot be written.
    """
    if directory.exists() and not _is_replaceable(directory):
        raise UserError(f"{directory} exists and is no export. Give --export another directory, or delete it.")
    with explain_write_errors(directory, "--export"), new_directory(directory, lasts=False) as temporary:
        shutil.copytree(STATIC, temporary, dirs_exist_ok=True)
        page = temporary / "index.html"
        page.write_text(page.read_text(encoding="utf-8").replace(SERVED, EXPORTED), encoding="utf-8")
        return _Writer(runs, temporary / "data").write(max_rollouts)


class _Writer:
    """Writes the data of one export."""

    def __init__(self, runs: Sequence[Run], data: Path) -> None:
        self._runs = runs
        self._data = data
        self._num_rollouts = 0

    def write(self, max_rollouts: int) -> Exported:
        self._data.mkdir()
        api, files = Api(self._runs), dict[str, str]()
        for name in ANSWERS:
            answer = api.answer(PREFIX + name, {})
            if name == "runs":  # nothing here goes on
                answer = [run | {"live": False} for run in answer]
            files[PREFIX + name] = self._file(f"{name}.js", answer)
        rollouts, notes = {}, []
        for run in self._runs:
            name = run.directory.id
            for what in ANSWERS_OF_A_RUN:
                path = f"{PREFIX}runs/{name}/{what}"
                files[path] = self._file(f"runs_{name}_{what}.js", api.answer(path, {}))
            rows, left_out = run.index.sample(max_rollouts)
            rollouts[name] = self._rollouts(run, rows)
            notes += [f"{name} has {left_out:,} more rollouts than this export"] if left_out else []
        note = f"{'; '.join(notes)}." if notes else ""
        self._file("manifest.js", {"files": files, "rollouts": rollouts, "note": note}, key="manifest")
        num_bytes = sum(path.stat().st_size for path in self._data.parent.rglob("*") if path.is_file())
        return Exported(self._num_rollouts, num_bytes, note)

    def _rollouts(self, run: Run, rows: Sequence[Json]) -> Json:
        """Write the index of a run's rollouts and their details; returns the names of the files."""
        name, details = run.directory.id, []
        for chunk, begin in enumerate(range(0, len(rows), DETAILS_PER_FILE)):
            keys = [row["key"] for row in rows[begin : begin + DETAILS_PER_FILE]]
            found = {key: read_rollout(run.directory.path, run.index.place(key)) for key in keys}
            details.append(self._file(f"runs_{name}_detail_{chunk}.js", to_json(found)))
        self._num_rollouts += len(rows)
        index = [to_json(row) | {"chunk": number // DETAILS_PER_FILE} for number, row in enumerate(rows)]
        return {"index": [self._file(f"runs_{name}_index_0.js", index)], "details": details}

    def _file(self, name: str, value: Any, key: str = "") -> str:
        """Write a value as a script; returns the name of the file."""
        # ASCII, so that no text needs an encoding to be known, or ends a line of the script.
        arguments = f"{json.dumps(key or name)},{json.dumps(value, allow_nan=False, separators=(',', ':'))}"
        (self._data / name).write_text(f"window.slimrlData({arguments});\n", encoding="ascii")
        return name


def _is_replaceable(directory: Path) -> bool:
    """Whether a directory is empty, or an earlier export."""
    return directory.is_dir() and ((directory / "data" / "manifest.js").is_file() or not any(directory.iterdir()))
