"""The small files of a run, such as its id, metrics and held-out results. Every checkpoint stores copies of them.

A run appends to `metrics.jsonl` at every step. A resumed run also needs the held-out results from the start of the run.
If one of the files is missing or damaged, the resumed run restores it from `checkpoints/step_N/run`.
"""

import re
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

from slimrl.errors import UserError
from slimrl.io.files import replace_file
from slimrl.io.regular_file import read_regular
from slimrl.io.run_dir import RunDir

COPIES = "run"
RUN_ID = "run_id"
MAX_ID_BYTES = 100
WELL_FORMED = re.compile(r"[0-9a-f]{32}")


def run_id(output_dir: Path) -> str:
    """Return the run's id from the file `run_id` in `output_dir`. The first call creates this file. Raises OSError if
    the file cannot be read or written."""
    if not (known := kept_id(output_dir)):
        replace_file(output_dir / RUN_ID, [f"{(known := uuid.uuid4().hex)}\n".encode()])
    return known


def kept_id(directory: Path) -> str:
    """Return the id in `directory`; empty if the id is missing or damaged. The directory belongs to a run, or holds a
    checkpoint's copies."""
    try:
        text = read_regular(directory / RUN_ID, MAX_ID_BYTES).decode("ascii").strip()
    except (UserError, ValueError):
        return ""
    return text if WELL_FORMED.fullmatch(text) else ""


def copy_records(output_dir: Path, checkpoint: Path, step: int) -> None:
    """Copy the small files, in their state after `step` steps, to `checkpoint/run`. Raises OSError on failure."""
    run_id(output_dir)
    run = RunDir(output_dir)
    # A resumed run repeats evaluations of later steps, so their files are not copied.
    stages = [run.stage(slug) for slug in ("base", "start", *(f"step_{before}" for before in range(step)))]
    ids = [output_dir / name for name in (RUN_ID, "wandb_run_id")]
    for path in (run.metrics, run.warmup.metrics, *ids, *stages):
        if path.is_file():
            copy = checkpoint / COPIES / path.relative_to(output_dir)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)


def restore_records(output_dir: Path, checkpoint: Path, note: Callable[[str], None]) -> None:
    """Restore the run's files from the copies in `checkpoint`. `note` receives a line for each missing or damaged file.
    Metrics of steps after the checkpoint are dropped, because the run repeats these steps."""
    for copy in sorted(path for path in (checkpoint / COPIES).rglob("*") if path.is_file()):
        path, wanted = output_dir / copy.relative_to(checkpoint / COPIES), copy.read_bytes()
        found = path.read_bytes() if path.is_file() else None
        if found is None or (found[: len(wanted)] if path == RunDir(output_dir).metrics else found) != wanted:
            note(f"{path} is {'missing' if found is None else 'damaged'}: it is restored from {checkpoint}")
        if found != wanted:
            replace_file(path, [wanted])
