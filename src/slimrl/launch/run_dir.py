"""The directory of a run: is it there, may we write to it, and does it hold a run already?"""

import os
from pathlib import Path

from slimrl.config.load import C, Resolved
from slimrl.config.write import write_config
from slimrl.errors import UserError
from slimrl.trainer.checkpoint import remove_leftovers

METRICS = "metrics.jsonl"


def open_run_dir(resolved: Resolved[C], output_dir: Path, resume: bool) -> Path:
    """Create the directory, or take up the run in it.

    Raises UserError when it cannot be written, or when it holds a run and `resume` is not set: nothing is ever
    overwritten by accident.
    """
    if (output_dir / METRICS).exists() and not resume:
        raise UserError(
            f"{output_dir} already holds a run. Continue it with `--resume`, keep it and give `--output_dir` another "
            "directory, or delete it."
        )
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot create {output_dir}: {error.strerror}. Choose another `--output_dir`.") from error
    if not os.access(output_dir, os.W_OK | os.X_OK):
        raise UserError(f"cannot write to {output_dir}. Change its permissions or choose another `--output_dir`.")
    remove_leftovers(output_dir)
    write_config(resolved, output_dir)
    return output_dir
