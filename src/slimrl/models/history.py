"""Reads and writes the history of saved weights: their training stages, and the run that saved them. It is a file
beside the weights."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slimrl.io.checksums import check_sums
from slimrl.io.regular_file import read_json

FILE_NAME = "slimrl.json"
MAX_BYTES = 2**20
SUPERVISED = "sft"  # a run of `sft`, or the warm-up of `rl`


@dataclass(frozen=True, slots=True)
class TrainingHistory:
    """The history of saved weights. `trained` lists the training stages in order, such as ("sft", "rl"). `name` is the
    directory's name when the weights were saved. `run` is the id of the run that saved them (`trainer/records.py`);
    empty if unknown."""

    trained: tuple[str, ...] = ()
    name: str = ""
    run: str = ""


def read_history(directory: Path) -> TrainingHistory:
    """Return the history of the weights in a directory; empty unless a run of slimrl saved them. Raises UserError if
    the history's file is damaged."""
    path = directory / FILE_NAME
    check_sums(directory, [FILE_NAME])
    match read_json(path, MAX_BYTES) if os.path.lexists(path) else None:
        case {"trained": [*trained], **more}:
            return TrainingHistory(tuple(map(str, trained)), str(more.get("name", "")), str(more.get("run", "")))
    return TrainingHistory()


def write_history(directory: Path, trained: Sequence[str], name: str, run: str = "") -> None:
    """Write the history's file. `name` is the final name of the directory, `run` the id of the run. Raises OSError."""
    text = json.dumps({"trained": list(trained), "name": name, **({"run": run} if run else {})})
    (directory / FILE_NAME).write_text(f"{text}\n", encoding="utf-8")
