"""Runs that a benchmark makes through a command of slimrl, and does not make again while the same is asked of them.

Knows nothing of what a run is for, nor of what came of it.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slimrl.config.base import CommandConfig
from slimrl.config.reading.load import load
from slimrl.config.run import COMMANDS
from slimrl.errors import UserError
from slimrl.io.run_dir import RunDir

ROOT = Path(__file__).parents[2]
MAY_DIFFER = {"output_dir", "resume"}
SUMMARY = "summary.json"


@dataclass(frozen=True, slots=True)
class Job:
    """A command and its words. Its run, in `directory`, is finished when `result` is there. `program` gets the words in
    place of `slimrl COMMAND`; both start in `cwd`."""

    command: str
    argv: Sequence[str]
    directory: Path
    result: str = SUMMARY
    program: Sequence[str] = ()
    cwd: Path | None = None


def finish(job: Job, resume: bool = False) -> None:
    """Have the directory hold a finished run of these settings: one that does is left as it is. One that was
    interrupted goes on with `resume`, and begins anew without, as it has to where time and memory are measured. A run
    of other settings is neither taken for this one nor overwritten: the script exits."""
    is_begun = RunDir(job.directory).settings.exists()
    is_finished = (job.directory / job.result).exists()
    if is_begun or is_finished:
        _check_same(job)
    if is_finished:
        return
    words = [*job.argv, *(["--resume"] if resume and is_begun else [])]
    if not resume:
        shutil.rmtree(job.directory, ignore_errors=True)
    program = job.program or (sys.executable, "-m", "slimrl", job.command)
    subprocess.run([*program, *words], check=True, cwd=job.cwd)


def flags(settings: dict[str, Any]) -> list[str]:
    """The settings as flags of a command."""
    return [text for key, value in settings.items() for text in (f"--{key}", str(value))]


def drop_weights(directory: Path) -> None:
    """Delete the weights, 2 GB for each of dozens of runs, and keep what they scored."""
    for name in ("weights", "checkpoints"):
        shutil.rmtree(directory / name, ignore_errors=True)


def _check_same(job: Job) -> None:
    """Exits if the run in the directory is not what is asked for."""
    asked = load(COMMANDS[job.command], job.argv, os.environ).config
    try:
        made = load(COMMANDS[job.command], ["@", str(RunDir(job.directory).settings)], {}).config
    except UserError as error:
        sys.exit(f"{job.directory}: what this run was made with cannot be read: {error} {_way_out()}")
    if differing := _differences(made, asked):
        sys.exit(f"{job.directory} was made with other settings ({', '.join(differing)}). {_way_out()}")


def _differences(made: CommandConfig, asked: CommandConfig) -> list[str]:
    """The sections and settings that are not the same."""
    before, now = made.model_dump(exclude=MAY_DIFFER), asked.model_dump(exclude=MAY_DIFFER)
    return [key for key in now if before[key] != now[key]]


def _way_out() -> str:
    return "Delete it, or give `--runs` another directory."
