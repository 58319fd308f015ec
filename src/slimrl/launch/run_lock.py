"""The lock of a run's directory, and the files that mark a run. Needs no PyTorch.

The operating system releases the lock when its holder dies, so a killed run can be resumed.
"""

import contextlib
import os
from pathlib import Path

from filelock import FileLock

from slimrl.errors import UserError
from slimrl.io.files import explain_write_errors
from slimrl.io.locks import acquire, holder_of
from slimrl.io.process_tree import is_stopped
from slimrl.io.run_dir import RunDir


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


def refuse_in_use(output_dir: Path) -> None:
    """Raise UserError if another process is at work in the directory."""
    path = RunDir(output_dir).lock
    if path.is_file():
        lock = FileLock(path)
        with explain_write_errors(path):
            if not acquire(lock, 0.0):
                raise in_use(output_dir)
            lock.release()


def make_writable(output_dir: Path) -> None:
    """Create the directory. Raises UserError if that fails, or if nothing can be written there."""
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot create {output_dir}: {error.strerror}. Choose another `--output_dir`.") from error
    if not os.access(output_dir, os.W_OK | os.X_OK):
        raise UserError(f"cannot write to {output_dir}. Change its permissions or choose another `--output_dir`.")


def refuse_unwritable(output_dir: Path) -> None:
    """Raise UserError if the directory cannot be used. If the directory is new, it is removed again."""
    new = [path for path in (output_dir, *output_dir.parents) if not path.exists()]
    make_writable(output_dir)
    with contextlib.suppress(OSError):  # another run may have started there
        for path in new:
            path.rmdir()


def in_use(output_dir: Path) -> UserError:
    """Return the error about a directory in which another process is at work."""
    holder = holder_of(RunDir(output_dir).lock)
    who = f"another process ({holder}{', which is stopped' * is_stopped(holder)})" if holder else "another process"
    return UserError(
        f"{who} is at work in {output_dir}. Wait until it is done, end it, or give `--output_dir` another directory."
    )


def has_content(path: Path) -> bool:
    """Return True if the path is a file with content, or a directory with such a file below it. Empty files do not
    count, because a run that is refused at its start leaves empty files."""
    return any(one.is_file() and one.stat().st_size for one in (path, *path.rglob("*")))
