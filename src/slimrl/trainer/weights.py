"""The saved weights of a run, `weights/step_N`, and the names `latest` and `best` for two of them.

The names are symbolic links, so that every program can use them.
"""

import contextlib
import math
import os
from collections.abc import Mapping
from pathlib import Path

from slimrl.io.run_dir import RunDir, step_directories, step_of
from slimrl.trainer.checkpoint import prune

LATEST, BEST = "latest", "best"


def keep_newest(output_dir: Path, keep: int) -> None:
    """Name the newest weights `latest`, and delete all but the newest `keep` and the `best` ones."""
    directory = RunDir(output_dir).weights
    found = step_directories(directory)
    if not found:
        return
    _link(directory / LATEST, found[-1])
    best = directory / BEST
    prune([old for old in found[:-keep] if not (best.exists() and best.samefile(old))])


def name_best(output_dir: Path, scores: Mapping[int, float]) -> None:
    """Name the weights of the step with the highest score `best`, or the latest of several. Only saved weights count,
    and a score of nan counts as missing. Without any score, the name is not set."""
    known = {step for step, score in scores.items() if not math.isnan(score)}
    directory = RunDir(output_dir).weights
    measured = [path for path in step_directories(directory) if step_of(path) in known]
    if measured:
        _link(directory / BEST, max(measured, key=lambda path: (scores[step_of(path)], step_of(path))))


def _link(name: Path, target: Path) -> None:
    """Point a name at a directory beside it, in one rename. A file system without links has no such name."""
    partial = name.with_name(f".partial_{name.name}")
    with contextlib.suppress(OSError):
        partial.unlink(missing_ok=True)
        partial.symlink_to(target.name, target_is_directory=True)
        os.replace(partial, name)
