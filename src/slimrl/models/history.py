"""What weights are: the training they have had in slimrl, and which of their run's they are. A small file beside them
says so."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slimrl.io.checksums import check_sums
from slimrl.io.regular_file import read_regular

FILE_NAME = "slimrl.json"
MAX_BYTES = 2**20
SUPERVISED = "sft"  # a run of `sft`, or the warm-up of `rl`


def read_history(directory: Path) -> tuple[str, ...]:
    """The trainings, in their order, such as ("sft", "rl"); empty for weights that no run of slimrl has saved. Raises
    UserError if the file is damaged."""
    trained = _read(directory).get("trained")
    return tuple(str(one) for one in trained) if isinstance(trained, list) else ()


def first_name(directory: Path) -> str:
    """The name that the directory had when it was saved; empty if it does not tell. Raises UserError if the file is
    damaged."""
    return str(_read(directory).get("name", ""))


def run_of(directory: Path) -> str:
    """The id of the run that saved the weights (`trainer/records.py`); empty if unknown. Raises UserError if the file
    is damaged."""
    return str(_read(directory).get("run", ""))


def write_history(directory: Path, trained: Sequence[str], name: str, run: str = "") -> None:
    """Write the file. `name` is the name of the weights' directory, and `run` the id of its run. Raises OSError."""
    text = json.dumps({"trained": list(trained), "name": name, **({"run": run} if run else {})})
    (directory / FILE_NAME).write_text(f"{text}\n", encoding="utf-8")


def _read(directory: Path) -> dict[str, Any]:
    check_sums(directory, [FILE_NAME])
    if not os.path.lexists(directory / FILE_NAME):
        return {}
    text = read_regular(directory / FILE_NAME, MAX_BYTES)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
