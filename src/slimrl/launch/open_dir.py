"""Opens the directory of a run: checks that it is writable, and that it does not hold another run or other settings.

A process that has opened a directory locks it until the end of the `with` block. If the process dies, the operating
system releases the lock, so a killed run can be resumed. A run may be refused before it has measured or saved anything,
for example because its model cannot be loaded. If the directory is new, it is then removed again. The checks do not
import PyTorch.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from filelock import FileLock

from slimrl.config.base import SECRET, CommandConfig
from slimrl.config.reading.load import C, Resolved
from slimrl.config.reading.saved import flat_settings, is_changed, read_flat_settings, write_config
from slimrl.config.run import RLConfig, RunConfig
from slimrl.errors import UserError
from slimrl.io.files import explain_write_errors
from slimrl.io.locks import acquire, holder_of
from slimrl.io.process_tree import is_stopped
from slimrl.io.run_dir import RunDir
from slimrl.plugins import call

LEASE_S = 150.0  # NFS frees the locks of a silent client after 90 s by default
MOMENT_S = 2.0
MAY_DIFFER = ("resume", "output_dir", "deployment.host")  # `deployment.host` depends on the node
# Settings that may change when an evaluation is resumed. They choose which episodes are played, but do not change the
# result of an episode.
EVALUATION_MAY_DIFFER = (*MAY_DIFFER, "num_examples", "temperatures", "baselines")


def initial_weights(config: RLConfig) -> str:
    """Return the name or path of the weights with which RL starts: the warm-up's, or else the base model's."""
    if not config.warmup.max_steps:
        return config.model.name
    return str(RunDir(Path(config.output_dir)).warmup.weights_of(config.warmup.max_steps))


def with_pinned_model(resolved: Resolved[C]) -> Resolved[C]:
    """Replace the link `weights/latest` or `weights/best` in the settings with its current target, because the link may
    change before the run is resumed."""
    config = resolved.config
    if not isinstance(config, RunConfig) or not (path := Path(config.model.name)).is_symlink():
        return resolved
    model = config.model.model_copy(update={"name": str(path.parent / path.readlink())})
    return replace(resolved, config=config.model_copy(update={"model": model}))


@contextmanager
def open_training_dir(
    resolved: Resolved[C], output_dir: Path, resume: bool, note: Callable[[str], None]
) -> Iterator[Path]:
    """Context manager: create the directory of a training run, or open it again with `resume`. With `resume`, settings
    that differ from the stored settings of the run are logged.

    Raises UserError if the directory cannot be written or another process uses it. Without `resume`, also raises
    UserError if the directory holds a run, so that nothing is overwritten by accident.
    """
    with _lock(output_dir, lock_patience_s(resolved.config), note):
        call("slimrl.trainer.recovery:tidy", output_dir, resume, note)  # imports PyTorch
        if resume:
            kept = RunDir(output_dir).settings
            if kept.exists() and is_changed(kept):
                note(f"{kept} was edited or damaged since the run wrote it; the settings given now count")
            for change in _changes(resolved, output_dir, MAY_DIFFER):
                note(f"resuming with another setting: {change}")
        else:
            refuse_run(output_dir)
        write_config(resolved, output_dir)
        yield output_dir


@contextmanager
def open_evaluation_dir(
    resolved: Resolved[C], output_dir: Path, resume: bool, note: Callable[[str], None]
) -> Iterator[Path]:
    """Context manager: create the directory of an evaluation, or open it again with `resume`. Without `resume`, an
    earlier evaluation is replaced, and this is logged.

    Raises UserError if the directory cannot be written, if another process uses it, or if it holds a training run. Also
    raises UserError if the earlier episodes of a resumed evaluation were played with other settings.
    """
    run = RunDir(output_dir)
    with _lock(output_dir, 0.0, note):
        if holds_training(run):
            raise UserError(f"{output_dir} holds a training run. Give `--output_dir` another directory.")
        has_episodes = holds_evaluation(run)
        if has_episodes and resume and (changes := [*_changes(resolved, output_dir, EVALUATION_MAY_DIFFER)]):
            raise UserError(
                f"the evaluation in {output_dir} was made with other settings ({'; '.join(changes)}): its episodes "
                "cannot be taken together with new ones. Leave `--resume` away to begin again, or give `--output_dir` "
                "another directory."
            )
        if has_episodes and not resume:
            note(f"replacing the evaluation that was in {output_dir}")
            for path in run.held_out.glob("*.json*"):
                path.unlink()
        write_config(resolved, output_dir)
        yield output_dir


def lock_patience_s(config: CommandConfig) -> float:
    """Return the seconds to wait for a lock that may belong to a dead process. On a cluster, a file server keeps the
    locks of a lost machine for some time."""
    return LEASE_S if isinstance(config, RLConfig) and config.resume and config.deployment.type == "ray" else 0.0


@contextmanager
def _lock(output_dir: Path, patience_s: float, note: Callable[[str], None]) -> Iterator[None]:
    """Context manager: create and lock the directory."""
    new, run = _make_writable(output_dir), RunDir(output_dir)
    lock = FileLock(run.lock)
    with explain_write_errors(run.lock):
        is_held = acquire(lock, min(MOMENT_S, patience_s))
        if not is_held and patience_s:
            note(f"another process is at work in {output_dir}; waiting up to {patience_s:g} s for its end")
            is_held = acquire(lock, patience_s)
    if not is_held:
        raise _in_use(output_dir)
    try:
        yield
    except UserError:
        # If the parts of a run are separate processes, another part may already use the directory.
        if not holds_training(run) and not holds_evaluation(run) and not run.transport.exists():
            if new:
                _remove(new)
            else:
                run.settings.unlink(missing_ok=True)
        raise
    finally:
        lock.release()


def _remove(directories: Sequence[Path]) -> None:
    """Remove the first directory with its content. The other directories are its parents, the nearest first. Remove
    them, too, up to the first that is not empty."""
    shutil.rmtree(directories[0])
    for parent in directories[1:]:
        if any(parent.iterdir()):  # another run may have started there
            return
        parent.rmdir()


def _changes(resolved: Resolved[C], output_dir: Path, may_differ: Collection[str]) -> Iterator[str]:
    """Compare the stored settings of the run so far with the current settings. Yield each difference as `key: old ->
    new`. Settings that an older version did not have are compared only if the user has set them now."""
    if not RunDir(output_dir).settings.exists():
        return
    before, now = read_flat_settings(output_dir, resolved.config.command), flat_settings(resolved.config)
    for key in sorted(before.keys() | (now.keys() & resolved.provenance.keys()) if before else ()):
        if key not in (*may_differ, SECRET) and before.get(key) != now.get(key):
            yield f"{key}: {before.get(key, 'none')} -> {now.get(key, 'none')}"


def holds_training(run: RunDir) -> bool:
    """Return True if the directory has files of a training run that has started."""
    return any(map(has_content, (run.metrics, run.checkpoints, run.warmup.path)))


def holds_evaluation(run: RunDir) -> bool:
    """Return True if the directory has episodes or results of an evaluation."""
    return has_content(run.held_out)


def refuse_run(output_dir: Path) -> None:
    """Raise UserError if the directory holds a run."""
    run = RunDir(output_dir)
    if holds_training(run) or holds_evaluation(run):
        raise UserError(
            f"{output_dir} already holds a run. Continue it with `--resume`, keep it and give `--output_dir` another "
            "directory, or delete it."
        )


def refuse_unusable(output_dir: Path, resume: bool, is_on_cluster: bool) -> None:
    """Raise UserError if a run cannot open its directory now: another process uses it, nothing can be written there, or
    it holds a run and `resume` is False. Leaves no new file. On a cluster, only a run is refused, because there a lock
    may exist longer than its holder."""
    if not is_on_cluster:
        lock = FileLock(RunDir(output_dir).lock)
        with explain_write_errors(RunDir(output_dir).lock):
            if RunDir(output_dir).lock.is_file() and not acquire(lock, 0.0):
                raise _in_use(output_dir)
            lock.release()
        with contextlib.suppress(OSError):  # another run may have started there
            for path in _make_writable(output_dir):
                path.rmdir()
    if not resume:
        refuse_run(output_dir)


def _make_writable(output_dir: Path) -> list[Path]:
    """Create the directory, and return the directories that are new, the innermost first. Raises UserError if that
    fails, or if nothing can be written there."""
    new = [path for path in (output_dir, *output_dir.parents) if not path.exists()]
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot create {output_dir}: {error.strerror}. Choose another `--output_dir`.") from error
    if not os.access(output_dir, os.W_OK | os.X_OK):
        raise UserError(f"cannot write to {output_dir}. Change its permissions or choose another `--output_dir`.")
    return new


def _in_use(output_dir: Path) -> UserError:
    """Return the error for a directory that another process uses."""
    holder = holder_of(RunDir(output_dir).lock)
    who = f"another process ({holder}{', which is stopped' * is_stopped(holder)})" if holder else "another process"
    return UserError(
        f"{who} is at work in {output_dir}. Wait until it is done, end it, or give `--output_dir` another directory."
    )


def has_content(path: Path) -> bool:
    """Return True if the path is a file with content, or a directory with a file with content below it. Empty files do
    not count, because a run that is refused at its start leaves empty files."""
    return any(one.is_file() and one.stat().st_size for one in (path, *path.rglob("*")))
