"""The small files of a run that a resumed run reads, or that belong to its result. Every checkpoint stores copies.

A run appends to `metrics.jsonl` at every step, and reads the held-out results of its start again. If such a file was
damaged before a checkpoint, it can be restored from the copies in `checkpoints/step_N/run`.
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
    """Return the run's id, which a file in its directory stores; the first call creates it. Raises OSError."""
    if not (known := kept_id(output_dir)):
        replace_file(output_dir / RUN_ID, [f"{(known := uuid.uuid4().hex)}\n".encode()])
    return known


def kept_id(directory: Path) -> str:
    """Return the id in a run's directory or in its copies; empty if it is missing or damaged."""
    try:
        text = read_regular(directory / RUN_ID, MAX_ID_BYTES).decode("ascii").strip()
    except (UserError, ValueError):
        return ""
    return text if WELL_FORMED.fullmatch(text) else ""


def copy_records(output_dir: Path, checkpoint: Path, step: int) -> None:
    """Copy the files that the run has after `step` steps to `checkpoint/run`. Raises OSError if that fails."""
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


def share_metrics(output_dir: Path, checkpoint: Path) -> bool:
    """Return True if the run's metrics and the checkpoint's copy share a line, or if one of them is empty."""
    files = [RunDir(path).metrics for path in (output_dir, checkpoint / COPIES)]
    own, copied = ({*path.read_bytes().splitlines()} if path.is_file() else set() for path in files)
    return not own or not copied or bool(own & copied)


def restore_records(output_dir: Path, checkpoint: Path, note: Callable[[str], None]) -> None:
    """Restore the files to their state at the checkpoint, and log each that was missing or damaged. Newer lines of the
    run's own metrics are dropped, because their steps are repeated."""
    for copy in sorted(path for path in (checkpoint / COPIES).rglob("*") if path.is_file()):
        path, wanted = output_dir / copy.relative_to(checkpoint / COPIES), copy.read_bytes()
        found = path.read_bytes() if path.is_file() else None
        if found is None or (found[: len(wanted)] if path == RunDir(output_dir).metrics else found) != wanted:
            note(f"{path} is {'missing' if found is None else 'damaged'}: it is restored from {checkpoint}")
        if found != wanted:
            replace_file(path, [wanted])
