"""The small files of a run that a resumed run reads, or that end up in its result: a checkpoint keeps copies of them.

A run adds to `metrics.jsonl` at every step, and reads the held-out results of its start again. What is damaged of them
before a checkpoint can be had back from the copies, in `checkpoints/step_N/run`.
"""

import re
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

from slimrl.errors import UserError
from slimrl.io.files import replace_file
from slimrl.io.regular_file import read_regular

COPIES = "run"
RUN_ID = "run_id"
MAX_ID_BYTES = 100
METRICS = "metrics.jsonl"
WELL_FORMED = re.compile(r"[0-9a-f]{32}")
# The ids of the run, its own and that at Weights & Biases, and what the stages before training have left.
OF_THE_START = (RUN_ID, "wandb_run_id", "held_out/base.json", "held_out/start.json", f"warmup/{METRICS}")


def run_id(output_dir: Path) -> str:
    """The id of the run, which a file of its directory holds; made at the first call. Raises OSError."""
    if not (known := kept_id(output_dir)):
        replace_file(output_dir / RUN_ID, [f"{(known := uuid.uuid4().hex)}\n".encode()])
    return known


def kept_id(directory: Path) -> str:
    """The id in the file of a run's directory or of its copies; empty if there is none, or it is damaged."""
    try:
        text = read_regular(directory / RUN_ID, MAX_ID_BYTES).decode("ascii").strip()
    except (UserError, ValueError):
        return ""
    return text if WELL_FORMED.fullmatch(text) else ""


def copy_records(output_dir: Path, checkpoint: Path, step: int) -> None:
    """Copies the files that the run has after `step` steps to `checkpoint/run`. Raises OSError if that fails."""
    run_id(output_dir)
    # An evaluation named after a step that is not behind us would be made again by a resumed run.
    for name in (METRICS, *OF_THE_START, *(f"held_out/step_{before}.json" for before in range(step))):
        if (output_dir / name).is_file():
            copy = checkpoint / COPIES / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(output_dir / name, copy)


def share_metrics(output_dir: Path, checkpoint: Path) -> bool:
    """Whether the run's metrics and the checkpoint's copy have a line in common, or one of them has no line."""
    files = [path / METRICS for path in (output_dir, checkpoint / COPIES)]
    own, copied = ({*path.read_bytes().splitlines()} if path.is_file() else set() for path in files)
    return not own or not copied or bool(own & copied)


def restore_records(output_dir: Path, checkpoint: Path, note: Callable[[str], None]) -> None:
    """Makes the files what they were at the checkpoint, and notes each that was missing or damaged. The run's own
    metrics may have gone on since: these lines are dropped, as the steps are done again."""
    for copy in sorted(path for path in (checkpoint / COPIES).rglob("*") if path.is_file()):
        path, wanted = output_dir / copy.relative_to(checkpoint / COPIES), copy.read_bytes()
        found = path.read_bytes() if path.is_file() else None
        if found is None or (found[: len(wanted)] if path == output_dir / METRICS else found) != wanted:
            note(f"{path} is {'missing' if found is None else 'damaged'}: it is restored from {checkpoint}")
        if found != wanted:
            replace_file(path, [wanted])
