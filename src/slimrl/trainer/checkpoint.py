"""Checkpoints, from which a killed run continues exactly: weights, optimizer, orchestrator, random generators.

A checkpoint is a directory `output_dir/checkpoints/step_N` that appears whole or not at all: it is written under
another name, synced to disk, and renamed. `step` counts finished training steps, so a run resumed from step_N begins
with step N.
"""

import json
import os
import random
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError

from slimrl.errors import UserError
from slimrl.models.device import dtype_name
from slimrl.trainer.optim import MasterAdamW

# The errors that reading a truncated, overwritten or foreign file raises, depending on where it is damaged.
DAMAGED = (OSError, EOFError, RuntimeError, LookupError, ValueError, TypeError, AttributeError, UnpicklingError)


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands, and the choices measured at its start that a resumed run must not measure again.

    `step` training steps are done, and the run has taken `seconds`. `date` is the one in the prompts, and empty if the
    chat template writes none. `orchestrator_state` is that of the last batch
    (`transport/base.py`), kept for the orchestrator and never read here.
    """

    step: int
    dtype: str
    num_threads: int
    seconds: float
    date: str = ""
    orchestrator_state: Mapping[str, Any] = field(default_factory=dict)


def step_directories(parent: Path) -> list[Path]:
    """The finished `step_N` directories in `parent`, oldest first."""
    found = [path for path in parent.glob("step_*") if path.name.removeprefix("step_").isdigit()]
    return sorted(found, key=lambda path: int(path.name.removeprefix("step_")))


def prune(directories: list[Path], keep: int) -> None:
    """Delete all but the newest `keep`."""
    for old in directories[:-keep]:
        shutil.rmtree(old)


def read_progress(output_dir: Path) -> Progress | None:
    """The progress that the newest checkpoint holds, read without its tensors; None if there is no checkpoint."""
    found = step_directories(output_dir / "checkpoints")
    if not found:
        return None
    try:
        return _progress_of(json.loads((found[-1] / "progress.json").read_text()))
    except DAMAGED as error:
        raise UserError(_unreadable(found[-1], error)) from error


def _progress_of(content: dict[str, Any]) -> Progress:
    """The progress in a `progress.json`. Older files have the orchestrator's state beside the trainer's own keys."""
    own = {name: content.pop(name) for name in ("step", "dtype", "num_threads", "seconds")}
    own["date"] = content.pop("date", "")
    return Progress(**own, **(content if "orchestrator_state" in content else {"orchestrator_state": content}))


@contextmanager
def report_write_errors(directory: Path) -> Iterator[None]:
    """Convert a failed write inside to a UserError. torch raises RuntimeError for one, safetensors its own error."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        raise UserError(
            f"could not write {directory}: {error}. Earlier checkpoints are intact. Make room (a checkpoint takes "
            "about 12 bytes a parameter, weights 2 or 4), or lower `--ckpt.keep`, and continue with `--resume`."
        ) from error


def save_checkpoint(output_dir: Path, optimizer: MasterAdamW, progress: Progress, keep: int) -> Path:
    """Write `checkpoints/step_N`, and delete all but the newest `keep`. Returns the new directory.

    Raises UserError when it cannot be written; earlier checkpoints stay.
    """
    directory = _directory(output_dir, progress.step)
    partial = directory.with_name(f".partial_{directory.name}")
    with report_write_errors(directory):
        try:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            with (partial / "state.pt").open("wb") as file:
                # A rename does not wait for the data. Without fsync, a power cut could leave the final name on half a
                # file.
                torch.save({"optimizer": optimizer.state_dict(), "rng": rng_state()}, file)
                file.flush()
                os.fsync(file.fileno())
            with (partial / "progress.json").open("w") as text:
                json.dump(asdict(progress), text)
                text.flush()
                os.fsync(text.fileno())
            if directory.exists():
                shutil.rmtree(directory)
            os.replace(partial, directory)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    prune(step_directories(output_dir / "checkpoints"), keep)
    return directory


def fresh_progress(dtype: torch.dtype, day: date | None = None) -> Progress:
    """The progress of a run before its first step; `day` is the date in its prompts."""
    written = day.isoformat() if day else ""
    return Progress(step=0, dtype=dtype_name(dtype), num_threads=torch.get_num_threads(), seconds=0.0, date=written)


def load_checkpoint(output_dir: Path, optimizer: MasterAdamW) -> Progress | None:
    """Load the newest checkpoint into the optimizer, its module and the process's random generators. Returns its
    progress, or None if there is no checkpoint. Raises UserError if it cannot be read."""
    progress = read_progress(output_dir)
    if progress is None:
        return None
    directory = _directory(output_dir, progress.step)
    try:
        # `weights_only` loads tensors and plain data: a checkpoint from elsewhere can run no code.
        state: dict[str, Any] = torch.load(directory / "state.pt", map_location="cpu", weights_only=True)
        optimizer.load_state_dict(state["optimizer"])
        set_rng_state(state["rng"])
    except DAMAGED as error:
        raise UserError(_unreadable(directory, error)) from error
    return progress


def remove_leftovers(output_dir: Path) -> None:
    """Delete checkpoints that a killed process left half written."""
    for partial in (output_dir / "checkpoints").glob(".partial_*"):
        shutil.rmtree(partial, ignore_errors=True)


def rng_state() -> dict[str, Any]:
    """The state of every global random generator. slimrl's own are derived from the seed; environments may use
    these."""
    # numpy's and Python's states become tensors and lists, which `torch.load` accepts with `weights_only`.
    name, keys, position, has_gauss, cached = np.random.get_state()
    version, internal, gauss = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [str(name), torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, cached],
        "python": [version, list(internal), gauss],
    }


def set_rng_state(state: Mapping[str, Any]) -> None:
    """Set every global random generator to a state that `rng_state` gave."""
    torch.set_rng_state(state["torch"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))


def _directory(output_dir: Path, step: int) -> Path:
    return output_dir / "checkpoints" / f"step_{step}"


def _unreadable(directory: Path, error: Exception) -> str:
    reason = "not a checkpoint" if isinstance(error, UnpicklingError) else str(error)
    return (
        f"the checkpoint {directory} cannot be read or is of another model ({type(error).__name__}: {reason}). Delete "
        "that directory and `--resume` continues from the one before it; or give `--output_dir` a fresh directory."
    )
