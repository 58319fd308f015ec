"""The lock of a run's directory, and the files that mark a run. Needs no PyTorch.

The operating system releases the lock when its holder dies, so a killed run can be resumed.
"""

import contextlib
import os
from collections.abc import Collection
from itertools import chain
from pathlib import Path

from filelock import FileLock

from slimrl.errors import UserError
from slimrl.io.files import explain_write_errors
from slimrl.io.locks import acquire, holder_of, is_stopped

METRICS = "metrics.jsonl"
TRAINING = (METRICS, "checkpoints", "warmup")  # files of a training run that has started
EVALUATION = "held_out"
LOCK = ".lock"


def refuse_run(output_dir: Path) -> None:
    """Raise UserError if the directory holds a run."""
    if holds(output_dir, (*TRAINING, EVALUATION)):
        raise UserError(
            f"{output_dir} already holds a run. Continue it with `--resume`, keep it and give `--output_dir` another "
            "directory, or delete it."
        )


def refuse_in_use(output_dir: Path) -> None:
    """Raise UserError if another process is at work in the directory."""
    lock = FileLock(output_dir / LOCK)
    if (output_dir / LOCK).is_file():
        with explain_write_errors(output_dir / LOCK):
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
    """Raise UserError if the directory cannot be used. A new one is removed again."""
    new = [path for path in (output_dir, *output_dir.parents) if not path.exists()]
    make_writable(output_dir)
    with contextlib.suppress(OSError):  # another run may have started there
        for path in new:
            path.rmdir()


def in_use(output_dir: Path) -> UserError:
    """Return the error about a directory in which another process is at work."""
    holder = holder_of(output_dir / LOCK)
    who = f"another process ({holder}{', which is stopped' * is_stopped(holder)})" if holder else "another process"
    return UserError(
        f"{who} is at work in {output_dir}. Wait until it is done, end it, or give `--output_dir` another directory."
    )


def holds(output_dir: Path, names: Collection[str]) -> bool:
    """Return True if a file with content exists under one of the names. Empty files do not count: a run that was
    refused at its start leaves some."""
    found = chain.from_iterable([output_dir / name, *(output_dir / name).rglob("*")] for name in names)
    return any(path.is_file() and path.stat().st_size for path in found)
