"""Checkpoints that a killed run continues from exactly: weights, optimizer, position in the data, every RNG.

A checkpoint is a directory `output_dir/checkpoints/step_N` that appears whole or not at all: it is written beside,
synced to disk, and renamed. `step` counts finished training steps, so a run resumed from step_N begins with step N.
"""

import json
import os
import random
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError

from slimrl.errors import UserError
from slimrl.trainer.optim import MasterAdamW

# What reading a truncated, overwritten or foreign file raises, depending on where it is damaged.
DAMAGED = (OSError, EOFError, RuntimeError, LookupError, ValueError, TypeError, AttributeError, UnpicklingError)


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands, and the choices measured at its start that a resumed run must not measure again.

    `step` training steps are done, `data_position` tasks are drawn, `seconds` were spent so far. `role_means` are those
    of `transport/base.py`'s `Batch`.
    """

    step: int
    data_position: int
    dtype: str
    num_threads: int
    seconds: float
    role_means: Mapping[str, float] = field(default_factory=dict)


def step_directories(parent: Path) -> list[Path]:
    """The finished `step_N` directories in a directory, oldest first."""
    found = [path for path in parent.glob("step_*") if path.name.removeprefix("step_").isdigit()]
    return sorted(found, key=lambda path: int(path.name.removeprefix("step_")))


def prune(directories: list[Path], keep: int) -> None:
    """Delete all but the newest `keep`."""
    for old in directories[:-keep]:
        shutil.rmtree(old)


def read_progress(output_dir: Path) -> Progress | None:
    """What the newest checkpoint says of the run, without loading its tensors; None if there is no checkpoint."""
    found = step_directories(output_dir / "checkpoints")
    if not found:
        return None
    try:
        return Progress(**json.loads((found[-1] / "progress.json").read_text()))
    except DAMAGED as error:
        raise UserError(_unreadable(found[-1], error)) from error


@contextmanager
def saving(directory: Path) -> Iterator[None]:
    """Turn a failed write into a UserError: torch reports one as RuntimeError, safetensors as an error of its own."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        raise UserError(
            f"could not write {directory}: {error}. Earlier checkpoints are intact. Make room (a checkpoint takes "
            "about 12 bytes a parameter, weights 2 or 4), or lower `--ckpt.keep`, and continue with `--resume`."
        ) from error


def save_checkpoint(output_dir: Path, optimizer: MasterAdamW, progress: Progress, keep: int) -> Path:
    """Write `checkpoints/step_N` and delete all but the newest `keep`.

    Raises UserError when the disk will not take it; the checkpoints that were there before stay.
    """
    directory = _directory(output_dir, progress.step)
    partial = directory.with_name(f".partial_{directory.name}")
    with saving(directory):
        try:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            with (partial / "state.pt").open("wb") as file:
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


def fresh_progress(dtype: torch.dtype) -> Progress:
    """Where a run stands before its first step."""
    name = str(dtype).removeprefix("torch.")
    return Progress(step=0, data_position=0, dtype=name, num_threads=torch.get_num_threads(), seconds=0.0)


def load_checkpoint(output_dir: Path, optimizer: MasterAdamW) -> Progress | None:
    """Put the newest checkpoint into the optimizer, its module and the process's RNGs, and say where it stands; None if
    there is no checkpoint. Raises UserError if it cannot be read."""
    progress = read_progress(output_dir)
    if progress is None:
        return None
    directory = _directory(output_dir, progress.step)
    try:
        state: dict[str, Any] = torch.load(directory / "state.pt", map_location="cpu", weights_only=True)
        optimizer.load_state_dict(state["optimizer"])
        set_rng_state(state["rng"])
    except DAMAGED as error:
        raise UserError(_unreadable(directory, error)) from error
    return progress


def remove_leftovers(output_dir: Path) -> None:
    """Delete what a killed process left half written."""
    for partial in (output_dir / "checkpoints").glob(".partial_*"):
        shutil.rmtree(partial, ignore_errors=True)


def rng_state() -> dict[str, Any]:
    """The state of every global generator (ours are all derived from the seed; environments may use these)."""
    name, keys, position, has_gauss, cached = np.random.get_state()
    version, internal, gauss = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [str(name), torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, cached],
        "python": [version, list(internal), gauss],
    }


def set_rng_state(state: Mapping[str, Any]) -> None:
    """The inverse of `rng_state`."""
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
