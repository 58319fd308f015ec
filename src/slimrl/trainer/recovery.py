"""Finds the newest complete checkpoint when a run is resumed.

Newer checkpoints that are damaged or belong to another run are logged and renamed. Afterwards the checkpoint with the
highest step is usable. If the user deleted the checksums of a checkpoint, its files are not verified.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

from slimrl.errors import UserError
from slimrl.io.checksums import find_damage, is_sealed, remove_unfinished
from slimrl.io.files import explain_write_errors
from slimrl.io.run_dir import RunDir, step_directories, step_of
from slimrl.models.history import read_history
from slimrl.trainer.checkpoint import progress_in
from slimrl.trainer.records import COPIES, kept_id, restore_records

Note = Callable[[str], None]
OF_ANOTHER = "its run_id is not this run's, so another run has saved it"


def tidy(output_dir: Path, resume: bool, note: Note) -> None:
    """Remove unfinished files of a run. With `resume`, also call `recover` for RL, and for the warm-up if RL has no
    checkpoint yet."""
    warmup = RunDir(output_dir).warmup.path
    remove_leftovers(output_dir)
    if resume:
        remove_leftovers(warmup)
        if not recover(output_dir, note):
            recover(warmup, note)


def remove_leftovers(output_dir: Path) -> None:
    """Delete checkpoints and weights that a killed process left incomplete."""
    run = RunDir(output_dir)
    for directory in (run.checkpoints, run.weights):
        remove_unfinished(directory)


def recover(output_dir: Path, note: Note) -> bool:
    """Check the checkpoints of a run, newest first, until a usable one is found, and restore the run's damaged files
    from it. Return True if the run has a checkpoint. `note` receives a line about each damaged file.

    Damaged checkpoints are renamed to `damaged_step_N` and kept. If all checkpoints are damaged, raises UserError and
    renames nothing.
    """
    run = RunDir(output_dir)
    found = step_directories(run.checkpoints)
    damaged: list[tuple[Path, str]] = []
    while found and (damage := _fault_of(found[-1], output_dir)):
        damaged.append((found.pop(), damage))
    if damaged and not found:
        each = "; ".join(f"{path.name}: {damage}" for path, damage in damaged)
        raise UserError(
            f"no checkpoint in {run.checkpoints} can be used: {each}. Copy one there that is whole, or "
            "delete that directory, and `--resume` trains again from the start of this stage."
        )
    for path, damage in damaged:
        lost = step_of(path) - step_of(found[-1])
        note(
            f"the checkpoint {path} cannot be used: {damage}. It is kept as {_set_aside(path).name}, and the run "
            f"goes on from {found[-1].name}: {lost} step{'s' * (lost > 1)} trained again"
        )
    if not found:
        return False
    restore_records(output_dir, found[-1], note)
    weights = run.weights_of(step_of(found[-1]))
    if is_sealed(weights) and (damage := _fault_of_weights(weights, output_dir)):
        note(f"the weights {weights} cannot be used: {damage}. They are saved again from the checkpoint")
        with explain_write_errors(weights):
            shutil.rmtree(weights)
    return True


def _fault_of(directory: Path, output_dir: Path) -> str:
    if is_sealed(directory) and (damage := find_damage(directory)):
        return damage
    try:
        progress_in(directory)
    except UserError as error:
        return str(error)
    return _fault_of_id(kept_id(directory / COPIES), output_dir)


def _fault_of_weights(directory: Path, output_dir: Path) -> str:
    if damage := find_damage(directory):
        return damage
    history = read_history(directory)
    if history.name not in ("", directory.name):
        return f"they are those of {history.name}"
    return _fault_of_id(history.run, output_dir)


def _fault_of_id(saved_by: str, output_dir: Path) -> str:
    return OF_ANOTHER if "" not in (saved_by, own := kept_id(output_dir)) and saved_by != own else ""


def _set_aside(directory: Path) -> Path:
    """Rename a damaged `step_N` to `damaged_step_N`, and return the new path. An earlier directory with this name is
    deleted."""
    aside = directory.with_name(f"damaged_{directory.name}")
    with explain_write_errors(aside):
        shutil.rmtree(aside, ignore_errors=True)
        return directory.rename(aside)
