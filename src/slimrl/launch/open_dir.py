"""Opens the directory of a run: checks that it is writable, and that it does not hold another run or other settings.

A process that has opened a directory holds a lock on it until it leaves the `with` block or dies. If a run is refused
before it has measured or saved anything, for example because its model cannot be loaded, a new directory is removed
again.
"""

import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from slimrl.config.base import SECRET, CommandConfig
from slimrl.config.model import ModelConfig
from slimrl.config.reading.load import C, Resolved
from slimrl.config.reading.write import is_changed, write_config
from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl.io.files import explain_write_errors
from slimrl.io.locks import acquire
from slimrl.io.run_dir import RunDir
from slimrl.launch.run_lock import holds_evaluation, holds_training, in_use, make_writable, refuse_run
from slimrl.monitor.run_settings import flat_settings, read_flat_settings
from slimrl.trainer.recovery import recover, remove_leftovers

LEASE_S = 150.0  # NFS frees the locks of a silent client after 90 s by default
MOMENT_S = 2.0
MAY_DIFFER = ("resume", "output_dir", "deployment.host")  # `deployment.host` depends on the node
# Settings that may change when an evaluation is resumed: they choose the episodes, but change no single episode.
EVALUATION_MAY_DIFFER = (*MAY_DIFFER, "num_examples", "temperatures", "baselines")


def initial_weights(config: RLConfig) -> str:
    """Return the name or path of the weights with which RL starts: the warm-up's weights, or the base model without a
    warm-up."""
    if not config.warmup.max_steps:
        return config.model.name
    return str(RunDir(Path(config.output_dir)).warmup.weights_of(config.warmup.max_steps))


def with_pinned_model(resolved: Resolved[C]) -> Resolved[C]:
    """Replace the link `weights/latest` or `weights/best` in the settings by its present target: the link may change
    before the run is resumed."""
    model = getattr(resolved.config, "model", None)
    if not isinstance(model, ModelConfig) or not (path := Path(model.name)).is_symlink():
        return resolved
    pinned = model.model_copy(update={"name": str(path.parent / path.readlink())})
    return replace(resolved, config=resolved.config.model_copy(update={"model": pinned}))


@contextmanager
def open_training_dir(
    resolved: Resolved[C], output_dir: Path, resume: bool, note: Callable[[str], None]
) -> Iterator[Path]:
    """Create the directory of a training run, or open it again with `resume`. Settings that differ from the
    settings of the run so far are logged.

    Raises UserError if it cannot be written, if another process uses it, or if it holds a run and `resume` is not set:
    nothing is ever overwritten by accident.
    """
    with _lock(output_dir, lock_patience_s(resolved.config), note):
        remove_leftovers(output_dir)
        if resume:
            _recover(output_dir, note)
            kept = RunDir(output_dir).settings
            if kept.exists() and is_changed(kept):
                note(f"{kept} was edited or damaged since the run wrote it; the settings given now count")
            if before := _read_settings(resolved.config, output_dir):
                for change in _changes(before, resolved, MAY_DIFFER):
                    note(f"resuming with another setting: {change}")
        else:
            refuse_run(output_dir)
        write_config(resolved, output_dir)
        yield output_dir


def _recover(output_dir: Path, note: Callable[[str], None]) -> None:
    """Make sure that the newest checkpoint of RL and its files are complete. If RL has none yet, check the warm-up's
    checkpoint."""
    warmup = RunDir(output_dir).warmup.path
    remove_leftovers(warmup)
    if not recover(output_dir, note):
        recover(warmup, note)


@contextmanager
def open_evaluation_dir(
    resolved: Resolved[C], output_dir: Path, resume: bool, note: Callable[[str], None]
) -> Iterator[Path]:
    """Create the directory of an evaluation, or open it again with `resume`. Without `resume`, an earlier evaluation is
    replaced, and that is logged.

    Raises UserError if it cannot be written, if another process uses it, if it holds a training run, or if the earlier
    episodes of a resumed evaluation were played with other settings.
    """
    run = RunDir(output_dir)
    with _lock(output_dir, 0.0, note):
        if holds_training(run):
            raise UserError(f"{output_dir} holds a training run. Give `--output_dir` another directory.")
        goes_on = resume and holds_evaluation(run)
        before = _read_settings(resolved.config, output_dir) if goes_on else {}
        if before and (changes := [*_changes(before, resolved, EVALUATION_MAY_DIFFER)]):
            raise UserError(
                f"the evaluation in {output_dir} was made with other settings ({'; '.join(changes)}): its episodes "
                "cannot be taken together with new ones. Leave `--resume` away to begin again, or give `--output_dir` "
                "another directory."
            )
        if not resume and holds_evaluation(run):
            note(f"replacing the evaluation that was in {output_dir}")
            for path in run.held_out.glob("*.json*"):
                path.unlink()
        write_config(resolved, output_dir)
        yield output_dir


def lock_patience_s(config: CommandConfig) -> float:
    """Return how long to wait for the lock of a dead process, in seconds. On a cluster, a file server keeps the locks
    of a lost machine for some time."""
    return LEASE_S if isinstance(config, RLConfig) and config.resume and config.deployment.type == "ray" else 0.0


@contextmanager
def _lock(output_dir: Path, patience_s: float, note: Callable[[str], None]) -> Iterator[None]:
    """Create and lock the directory. The operating system releases the lock when its holder dies, so a killed run can
    be resumed."""
    new = [path for path in (output_dir, *output_dir.parents) if not path.exists()]
    make_writable(output_dir)
    run = RunDir(output_dir)
    lock = FileLock(run.lock)
    with explain_write_errors(run.lock):
        is_held = acquire(lock, min(MOMENT_S, patience_s))
        if not is_held and patience_s:
            note(f"another process is at work in {output_dir}; waiting up to {patience_s:g} s for its end")
            is_held = acquire(lock, patience_s)
    if not is_held:
        raise in_use(output_dir)
    try:
        yield
    except UserError:
        # If the parts of a run are separate processes, other parts may already use the directory.
        if not holds_training(run) and not holds_evaluation(run) and not run.transport.exists():
            if new:
                _remove(new)
            else:
                run.settings.unlink(missing_ok=True)
        raise
    finally:
        lock.release()


def _remove(directories: Sequence[Path]) -> None:
    """Remove the first directory with its content. The others are its parents: remove them in order, as long as they
    are empty."""
    shutil.rmtree(directories[0])
    for parent in directories[1:]:
        if any(parent.iterdir()):  # another run may have started there
            return
        parent.rmdir()


def _read_settings(config: CommandConfig, output_dir: Path) -> dict[str, Any]:
    """Return the settings of the run so far, which are stored in its directory; empty if nothing is stored."""
    return read_flat_settings(output_dir, config.command) if RunDir(output_dir).settings.exists() else {}


def _changes(before: Mapping[str, Any], resolved: Resolved[C], may_differ: Collection[str]) -> Iterator[str]:
    """Yield the differences between the settings of a run so far and the present settings, as `key: old -> new`. A
    setting that an older version of slimrl did not have counts only if it was set by the user."""
    now = flat_settings(resolved.config)
    for key in sorted(before.keys() | (now.keys() & resolved.provenance.keys())):
        if key not in (*may_differ, SECRET) and before.get(key) != now.get(key):
            yield f"{key}: {before.get(key, 'none')} -> {now.get(key, 'none')}"
