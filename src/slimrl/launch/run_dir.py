"""The directory of a run: may we write to it, does it hold a run already, and does that run's config still hold?"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from slimrl.config.base import CommandConfig
from slimrl.config.load import C, Resolved, load
from slimrl.config.write import FILE_NAME, write_config
from slimrl.errors import UserError
from slimrl.trainer.checkpoint import remove_leftovers

METRICS = "metrics.jsonl"
TRAINING = (METRICS, "checkpoints", "warmup")  # what a training run leaves, from its first seconds on
EVALUATION = "held_out"
MAY_DIFFER = ("resume", "output_dir")


def open_training_dir(resolved: Resolved[C], output_dir: Path, resume: bool, note: Callable[[str], None]) -> Path:
    """Create the directory, or take up the run in it.

    Raises UserError when it cannot be written, or when it holds a run and `resume` is not set: nothing is ever
    overwritten by accident. Settings that differ from the ones the run was started with are pointed out.
    """
    if resume:
        for change in _changes(resolved.config, output_dir / FILE_NAME):
            note(f"resuming with another setting: {change}")
    elif any((output_dir / name).exists() for name in (*TRAINING, EVALUATION)):
        raise UserError(
            f"{output_dir} already holds a run. Continue it with `--resume`, keep it and give `--output_dir` another "
            "directory, or delete it."
        )
    _make_writable(output_dir)
    remove_leftovers(output_dir)
    write_config(resolved, output_dir)
    return output_dir


def open_evaluation_dir(resolved: Resolved[C], output_dir: Path) -> Path:
    """Create the directory; an earlier evaluation in it is replaced, a training run is not (UserError)."""
    if any((output_dir / name).exists() for name in TRAINING):
        raise UserError(f"{output_dir} holds a training run. Give `--output_dir` another directory.")
    _make_writable(output_dir)
    write_config(resolved, output_dir)
    return output_dir


def _make_writable(output_dir: Path) -> None:
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot create {output_dir}: {error.strerror}. Choose another `--output_dir`.") from error
    if not os.access(output_dir, os.W_OK | os.X_OK):
        raise UserError(f"cannot write to {output_dir}. Change its permissions or choose another `--output_dir`.")


def _changes(config: CommandConfig, kept: Path) -> Iterator[str]:
    """`key: old -> new` for every setting that the config kept in the run's directory has differently."""
    if not kept.exists():
        return
    before = dict(_flat(load(type(config), ["@", str(kept)], {}).config.model_dump()))
    now = dict(_flat(config.model_dump()))
    for key in sorted(before.keys() | now.keys()):
        if key not in MAY_DIFFER and before.get(key) != now.get(key):
            yield f"{key}: {before.get(key, 'none')} -> {now.get(key, 'none')}"


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
