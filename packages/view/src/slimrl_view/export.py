"""Writes the page with the data of some runs as files that open from the disk, without a server.

Browsers cannot fetch files from the disk, so each data file is a script that passes a value to the page:
`slimrlData(KEY, VALUE)`. The first script, `manifest.js`, names the file with the answer to each request. One index
file per run has all rollouts, which the page filters. Each file of details has up to a hundred rollouts.
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
from slimrl_view.server import STATIC
from slimrl_view.shown import Run

DETAILS_PER_FILE = 100
ANSWERS = ("runs", "registry")
ANSWERS_OF_A_RUN = ("metrics", "monitors", "watched", "reference", "files")
SERVED, EXPORTED = '<html lang="en" data-source="http">', '<html lang="en" data-source="static">'
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Exported:
    """The size of an export in rollouts and bytes, and a note on the missing rollouts."""

    num_rollouts: int
    num_bytes: int
    note: str


def export(runs: Sequence[Run], directory: Path, max_rollouts: int) -> Exported:
    """Write the page and the data of the runs. Each run has at most `max_rollouts` training rollouts, and at most as
    many evaluation rollouts. An earlier export in the directory is replaced.

    Raises UserError if the directory has other files, or cannot be written.
    """
    if directory.exists() and not _is_replaceable(directory):
        raise UserError(f"{directory} exists and is no export. Give --export another directory, or delete it.")
    with explain_write_errors(directory, "--export"), new_directory(directory, lasts=False) as temporary:
        shutil.copytree(STATIC, temporary, dirs_exist_ok=True)
        page = temporary / "index.html"
        page.write_text(page.read_text(encoding="utf-8").replace(SERVED, EXPORTED), encoding="utf-8")
        num, note = _write_data(runs, temporary / "data", max_rollouts)
        return Exported(num, sum(path.stat().st_size for path in temporary.rglob("*") if path.is_file()), note)


def _write_data(runs: Sequence[Run], data: Path, max_rollouts: int) -> tuple[int, str]:
    """Write the data of an export. Return the number of its rollouts, and a note on the missing ones."""
    data.mkdir()
    api, names = Api(runs), [run.directory.id for run in runs]
    paths = [*ANSWERS, *(f"runs/{name}/{what}" for name in names for what in ANSWERS_OF_A_RUN)]
    files = {f"{PREFIX}{path}": f"{path.replace('/', '_')}.js" for path in paths}
    for path, file in files.items():
        answer = api.answer(path, {})
        if path == f"{PREFIX}runs":  # in an export, runs do not change
            answer = [run | {"live": False} for run in answer]
        _write(data / file, answer)
    num, rollouts, notes = 0, {}, []
    for run in runs:
        rows, left_out = run.index.sample(max_rollouts)
        num += len(rows)
        rollouts[run.directory.id] = _write_rollouts(data, run, rows)
        notes += [f"{run.directory.id} has {left_out:,} more rollouts than this export"] if left_out else []
    note = f"{'; '.join(notes)}." if notes else ""
    _write(data / "manifest.js", {"files": files, "rollouts": rollouts, "note": note}, key="manifest")
    return num, note


def _write_rollouts(data: Path, run: Run, rows: Sequence[Json]) -> Json:
    """Write the index of a run's rollouts and their details. Return the names of the files."""
    name, details = run.directory.id, list[str]()
    for begin in range(0, len(rows), DETAILS_PER_FILE):
        keys = [row["key"] for row in rows[begin : begin + DETAILS_PER_FILE]]
        found = {key: read_rollout(run.directory.path, run.index.place(key)) for key in keys}
        details.append(f"runs_{name}_detail_{len(details)}.js")
        _write(data / details[-1], to_json(found))
    index = [to_json(row) | {"chunk": number // DETAILS_PER_FILE} for number, row in enumerate(rows)]
    _write(data / f"runs_{name}_index_0.js", index)
    return {"index": [f"runs_{name}_index_0.js"], "details": details}


def _write(path: Path, value: Any, key: str = "") -> None:
    """Write a value as a script in ASCII. So the encoding does not matter, and Unicode line separators in a text cannot
    break the script."""
    arguments = f"{json.dumps(key or path.name)},{json.dumps(value, allow_nan=False, separators=(',', ':'))}"
    path.write_text(f"window.slimrlData({arguments});\n", encoding="ascii")


def _is_replaceable(directory: Path) -> bool:
    """Return True if a directory is empty, or an earlier export."""
    return directory.is_dir() and ((directory / "data" / "manifest.js").is_file() or not any(directory.iterdir()))
