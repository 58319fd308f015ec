"""Writes and reads checkpoints: the state of weights, optimizer, orchestrator and random generators. A resumed run
continues exactly as the killed run would have.

A checkpoint is a directory `output_dir/checkpoints/step_N`. It is written with another name, synced to disk with the
checksums of its files, and then renamed. So a directory with the final name is always complete. `step` counts finished
training steps, so a run resumed from step_N continues with step N. `trainer/recovery.py` checks checkpoints before use.

The optimizer's tensors are in `state.pt`. If several processes share them, each process writes its shards to
`optimizer/` instead (`trainer/fsdp.py`). Any number of processes can resume from both layouts.
"""

import json
import random
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from pickle import UnpicklingError
from typing import Annotated, Any, ClassVar, Literal
from zipfile import is_zipfile

import numpy as np
import torch
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from safetensors import SafetensorError

from slimrl.config.base import describe_faults
from slimrl.config.model import MAX_THREADS
from slimrl.errors import UserError
from slimrl.io.cache import say
from slimrl.io.checksums import new_directory
from slimrl.io.regular_file import read_regular
from slimrl.io.run_dir import RunDir, step_directories, step_of
from slimrl.models.device import dtype_name
from slimrl.trainer.fsdp import check_shards, load_shards, save_shards
from slimrl.trainer.optim import MasterAdamW
from slimrl.trainer.parallel import ALONE, Ranks
from slimrl.trainer.records import copy_records

STATE, PROGRESS, SHARDS = "state.pt", "progress.json", "optimizer"
MAX_PROGRESS_BYTES = 2**31  # the file can be large: above async level 0 it holds the unused groups
# The exceptions when a truncated, overwritten or foreign file is read. The type depends on the place of the damage.
DAMAGED = (
    OSError,
    EOFError,
    RuntimeError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    UnpicklingError,
    SafetensorError,
)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run, and the values that are chosen at its start, such as `date`. A resumed run keeps these
    values.

    `step` is the number of finished training steps, and `seconds` the run's time so far. `date` is the date in the
    prompts; empty if the chat template writes none. `orchestrator_state` is the state after the last batch
    (`transport/base.py`). The trainer stores this state for the orchestrator, but never reads it.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    step: Annotated[int, Field(ge=0)]
    dtype: Literal["bfloat16", "float32"]
    num_threads: Annotated[int, Field(ge=1, le=MAX_THREADS)]
    seconds: Annotated[float, Field(ge=0)]
    date: Annotated[str, Field(pattern=r"^(\d{4}-\d\d-\d\d)?$")] = ""
    orchestrator_state: Mapping[str, Any] = field(default_factory=dict)


def prune(directories: list[Path]) -> None:
    """Delete old checkpoints or weights. If a directory cannot be deleted, for example because a file is open on NFS,
    log this and continue."""
    for old in directories:
        try:
            shutil.rmtree(old)
        except OSError as error:
            say(f"{old} is no longer needed and could not be deleted: {error}. Delete it yourself to free its space.")


def read_progress(output_dir: Path) -> Progress | None:
    """Return the progress in the newest checkpoint, without reading its tensors; None without a checkpoint."""
    found = step_directories(RunDir(output_dir).checkpoints)
    return progress_in(found[-1]) if found else None


def progress_in(directory: Path) -> Progress:
    """Return the progress in a checkpoint. Raises UserError if the progress cannot be read or belongs to another
    step."""
    path = directory / PROGRESS
    try:
        progress = TypeAdapter(Progress).validate_json(read_regular(path, MAX_PROGRESS_BYTES))
    except ValidationError as error:
        raise UserError(f"{path} cannot be what slimrl wrote: {describe_faults(error)}") from None
    if progress.step != step_of(directory):
        raise UserError(f"{path} is of step {progress.step}: the file or the directory's name is of another checkpoint")
    return progress


@contextmanager
def report_write_errors(directory: Path) -> Iterator[None]:
    """Context manager: convert the error of a failed write to a UserError. torch raises RuntimeError, safetensors
    raises SafetensorError."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        raise UserError(
            f"could not write {directory}: {error}. Earlier checkpoints are intact. Make room (a checkpoint takes "
            "about 12 bytes a parameter, weights 2 or 4), or lower `--ckpt.keep`, and continue with `--resume`."
        ) from error


def save_checkpoint(
    output_dir: Path, optimizer: MasterAdamW, progress: Progress, keep: int, ranks: Ranks = ALONE
) -> Path:
    """Write `checkpoints/step_N`, delete all but the newest `keep` checkpoints, and return the new directory.

    All processes that share the optimizer's state must call this. If one process cannot write, UserError is raised in
    all processes, and earlier checkpoints are kept.
    """
    directory = RunDir(output_dir).checkpoint_of(progress.step)
    state = optimizer.state_dict()
    with _new_shared_directory(directory, ranks) as partial:
        if ranks.num > 1:
            save_shards(state.pop("parameters"), partial / SHARDS)
        if ranks.leads:
            (partial / PROGRESS).write_text(json.dumps(asdict(progress)))
            torch.save({"step": progress.step, "optimizer": state, "rng": rng_state()}, partial / STATE)
            copy_records(output_dir, partial, progress.step)
    if ranks.leads:
        prune(step_directories(RunDir(output_dir).checkpoints)[:-keep])
    return directory


@contextmanager
def _new_shared_directory(directory: Path, ranks: Ranks) -> Iterator[Path]:
    """Context manager: yield the same temporary directory in all processes. The leading process creates it, and renames
    it at the end."""
    with ExitStack() as held:
        temporary = Path()
        with ranks.united(), report_write_errors(directory):
            if ranks.leads:
                temporary = held.enter_context(new_directory(directory))
        temporary = ranks.of_first(temporary)
        with ranks.united(), report_write_errors(directory):
            yield temporary
        with ranks.united(), report_write_errors(directory):
            held.close()


def fresh_progress(dtype: torch.dtype, day: date | None = None) -> Progress:
    """Return the progress of a run of this compute dtype before its first step. `day` is the date in the prompts; None
    if the chat template writes no date."""
    written = day.isoformat() if day else ""
    name: Any = dtype_name(dtype)
    return Progress(step=0, dtype=name, num_threads=torch.get_num_threads(), seconds=0.0, date=written)


def load_checkpoint(output_dir: Path, optimizer: MasterAdamW) -> Progress | None:
    """Load the newest checkpoint into the optimizer, its module and the process's random generators. Return the
    checkpoint's progress; None if there is no checkpoint. Raises UserError if the checkpoint cannot be read or does not
    fit the model."""
    found = step_directories(RunDir(output_dir).checkpoints)
    if not found:
        return None
    progress = progress_in(found[-1])
    try:
        state = _read_state(found[-1])
        saved = state["optimizer"]
    except DAMAGED as error:
        raise UserError(
            f"the checkpoint {found[-1]} cannot be read ({_explain(error)}). Delete that directory, and "
            "`--resume` continues from the one before it; or give `--output_dir` a fresh directory."
        ) from error
    try:
        if "parameters" not in saved:
            saved["parameters"] = optimizer.state_dict()["parameters"]
            load_shards(saved["parameters"], found[-1] / SHARDS)
        optimizer.load_state_dict(saved)
        set_rng_state(state["rng"])
    except DAMAGED as error:
        raise UserError(
            f"the checkpoint {found[-1]} does not fit this model ({_explain(error)}). Resume with the model "
            "and the `model.lora` that it was made with, which config.toml beside it names, or give `--output_dir` a "
            "fresh directory. The checkpoint is whole: keep it."
        ) from error
    return progress


def _read_state(directory: Path) -> dict[str, Any]:
    """Return the optimizer's state, the state of the random generators, and the step. Tensors are read from the disk on
    first use. Sharded tensors are not included. Raises one of `DAMAGED` if the file is damaged."""
    if not is_zipfile(directory / STATE):
        raise ValueError("not a checkpoint, or cut off")
    # `weights_only` loads tensors and plain data, so a foreign checkpoint cannot run code.
    state: dict[str, Any] = torch.load(directory / STATE, map_location="cpu", weights_only=True, mmap=True)
    if (step := state["step"]) != step_of(directory):
        raise ValueError(f"it is of step {step}")
    if "parameters" not in state["optimizer"]:
        check_shards(directory / SHARDS)
    return state


def _explain(error: Exception) -> str:
    # Leave out torch's message, because it advises to load the file unsafely.
    return "not a checkpoint" if isinstance(error, UnpicklingError) else f"{type(error).__name__}: {error}"


def rng_state() -> dict[str, Any]:
    """Return the state of every global random generator. Environments may use these generators. slimrl itself uses only
    generators that it creates from the run's seed."""
    # numpy's and Python's states become tensors and lists, because `torch.load` accepts these with `weights_only`.
    name, keys, position, has_gauss, cached = np.random.get_state()
    version, internal, gauss = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [str(name), torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, cached],
        "python": [version, list(internal), gauss],
    }


def set_rng_state(state: Mapping[str, Any]) -> None:
    """Set every global random generator to a state from `rng_state`."""
    torch.set_rng_state(state["torch"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
