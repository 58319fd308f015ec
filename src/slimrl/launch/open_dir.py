"""Opens the directory of a run: checks that it is writable, and that it does not hold another run or other settings.

A process that has opened a directory locks it until the end of the `with` block. If the process dies, the operating
system releases the lock, so a killed run can be resumed. A new directory is removed again if the run has measured and
saved nothing, for example because its model cannot be loaded. The checks do not import PyTorch.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from filelock import FileLock

from slimrl.config.base import SECRET, CommandConfig
from slimrl.config.reading.load import C, Resolved
from slimrl.config.reading.saved import OF_ONE_START, flat_settings, is_changed, read_flat_settings, write_config
from slimrl.config.run import RLConfig, RunConfig, TrainingRunConfig
from slimrl.errors import UserError
from slimrl.io.files import explain_write_errors
from slimrl.io.locks import acquire, holder_of
from slimrl.io.process_tree import is_stopped
from slimrl.io.run_dir import RunDir, step_directories, step_of
from slimrl.plugins import call

T = TypeVar("T", bound=TrainingRunConfig)

LEASE_S = 150.0  # NFS frees the locks of a silent client after 90 s by default
MOMENT_S = 2.0
MAY_DIFFER = ("output_dir", "deployment.host")  # `deployment.host` depends on the node
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
    resolved: Resolved[T], output_dir: Path, resume: bool, note: Callable[[str], None]
) -> Iterator[Path]:
    """Context manager: create the directory of a training run, or open it again with `resume`. With `resume`, settings
    that differ from the stored settings of the run are logged.

    Raises UserError if the directory cannot be written or another process uses it. Without `resume`, also raises
    UserError if the directory holds a run, so that nothing is overwritten by accident. With `resume`, also raises
    UserError if the run has made more steps than `max_steps`.
    """
    with _lock(output_dir, lock_patience_s(resolved.config), note):
        made = step_directories(RunDir(output_dir).checkpoints) if resume else []
        if made and (num_made := step_of(made[-1])) > resolved.config.max_steps:
            raise UserError(
                f"the run in {output_dir} has made {num_made} steps, and max_steps is {resolved.config.max_steps}. Set "
                f"`--max_steps {num_made}` or more."
            )
        call("slimrl.trainer.recovery:tidy", output_dir, resume, note)  # imports PyTorch
        kept = RunDir(output_dir).settings
        is_kept = resume and kept.exists()
        if not resume:
            refuse_run(output_dir)
        elif is_kept and is_changed(kept):
            note(f"{kept} was edited or damaged since the run wrote it; the settings given now count")
            is_kept = False
        changes = _changes(resolved, output_dir) if resume else {}
        for key, change in changes.items():
            if key not in MAY_DIFFER:
                note(f"resuming with another setting: {change}")
        if changes or not is_kept:  # otherwise keep the file, which has the first origin of each setting
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
        found = _changes(resolved, output_dir) if has_episodes and resume else {}
        if changes := [change for key, change in found.items() if key not in EVALUATION_MAY_DIFFER]:
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
    """Context manager: create and lock the directory. After a UserError, a new directory without results is removed."""
    run, is_new = RunDir(output_dir), not output_dir.exists()
    lock = FileLock(run.lock)
    with explain_write_errors(output_dir):
        output_dir.mkdir(parents=True, exist_ok=True)
        is_held = acquire(lock, min(MOMENT_S, patience_s))
        if not is_held and patience_s:
            note(f"another process is at work in {output_dir}; waiting up to {patience_s:g} s for its end")
            is_held = acquire(lock, patience_s)
    if not is_held:
        raise _in_use(output_dir)
    try:
        yield
    except UserError:
        if is_new:
            _remove_without_results(run)
        raise
    finally:
        lock.release()


def _remove_without_results(run: RunDir) -> None:
    # If the parts of a run are separate processes, another part may already use the directory.
    if not holds_training(run) and not holds_evaluation(run) and not run.transport.exists():
        shutil.rmtree(run.path, ignore_errors=True)


def _changes(resolved: Resolved[C], output_dir: Path) -> dict[str, str]:
    """Compare the stored settings of the run so far with the current settings. Return a dict from each setting that
    differs to the difference, as `key: old -> new`. Settings that an older version did not have are compared only if
    the user has set them now."""
    if not RunDir(output_dir).settings.exists():
        return {}
    before, now = read_flat_settings(output_dir, resolved.config.command), flat_settings(resolved.config)
    keys = before.keys() | (now.keys() & resolved.provenance.keys()) if before else set[str]()
    return {
        key: f"{key}: {before.get(key, 'none')} -> {now.get(key, 'none')}"
        for key in sorted(keys - {SECRET, OF_ONE_START})
        if before.get(key) != now.get(key)
    }


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
    """Raise UserError if a run cannot open its directory now: it holds a run and `resume` is False, another process
    uses it, or nothing can be written there. On a cluster, only a run is refused, because there a lock may exist longer
    than its holder."""
    is_new = not output_dir.exists()
    with nullcontext() if is_on_cluster else _lock(output_dir, 0.0, lambda _: None):
        if not resume:
            refuse_run(output_dir)
        if is_new and not is_on_cluster:
            _remove_without_results(RunDir(output_dir))


def _in_use(output_dir: Path) -> UserError:
    holder = holder_of(RunDir(output_dir).lock)
    who = f"another process ({holder}{', which is stopped' * is_stopped(holder)})" if holder else "another process"
    return UserError(
        f"{who} is at work in {output_dir}. Wait until it is done, end it, or give `--output_dir` another directory."
    )


def has_content(path: Path) -> bool:
    """Return True if the path is a file with content, or a directory with a file with content below it. Empty files do
    not count, because a run that is refused at its start leaves empty files."""
    return any(one.is_file() and one.stat().st_size for one in (path, *path.rglob("*")))
