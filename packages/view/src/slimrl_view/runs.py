"""Finds and names run directories, and lists the files in them that the viewer reads. Opens no files."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from slimrl.errors import UserError
from slimrl.io.run_dir import RunDir

HELD_OUT = "held_out"
TRAIN = "train"  # the common name of all rollout files of the training
STAGES = ("base", "start", "step", "final")
FINAL_RANK = 3
MANY_RUNS = 200  # the maximum in a directory of runs
PARENTS = ("outputs", "runs")  # the default directories of runs


@dataclass(frozen=True, slots=True)
class NamedRun:
    """A run: its directory, its name on the page, and its path as the user gave it."""

    id: str
    path: Path
    shown: str


@dataclass(frozen=True, slots=True)
class RolloutFile:
    """A file of rollouts. `name` is `train` for a file of the training, else `held_out/` and the file's own name."""

    path: Path
    name: str
    step: int


def is_run(path: Path) -> bool:
    """Return True if a directory has metrics or rollouts of a run."""
    return RunDir(path).metrics.is_file() or any(rollout_files(path))


def find_runs(parents: Iterable[Path]) -> list[Path]:
    """Return the run directories in the given directories and in their subdirectories, newest first."""
    found = {
        path
        for parent in parents
        for pattern in ("*", "*/*")
        for path in parent.glob(pattern)
        if path.is_dir() and not path.name.startswith(".") and is_run(path)
    }
    # A directory inside a run, such as the warm-up's, is not a separate run.
    return sorted((path for path in found if not found & {*path.parents}), key=_age)


def open_runs(arguments: Sequence[str]) -> list[NamedRun]:
    """Return the runs at the paths `arguments`, each run only once. For a directory of runs, return all runs in it.
    Raises UserError for a path that is neither a run nor a directory of runs."""
    paths: dict[Path, str] = {}
    for argument in arguments:
        given = Path(argument)
        for path in [given] if given.is_dir() and is_run(given) else _runs_within(given):
            paths.setdefault(path.resolve(), str(path))
    return [NamedRun(name, path, paths[path]) for path, name in zip(paths, _names([*paths]), strict=True)]


def rollout_files(path: Path, last_step: int = 0) -> Iterator[RolloutFile]:
    """Yield the rollout files of a run: first the training files in the order of steps, then the evaluation files in
    the order of stages. `last_step` is the step of the final evaluation."""
    files = RunDir(path)
    for step, found in files.rollout_files().items():
        yield from (RolloutFile(file, TRAIN, step) for file in found if file.suffix == ".jsonl")
    for file in sorted(files.held_out.glob("*.jsonl"), key=lambda file: (*stage_of(file.stem), file.name)):
        rank, step = stage_of(file.stem)
        yield RolloutFile(file, f"{HELD_OUT}/{file.stem}", last_step if rank == FINAL_RANK else step)


def stage_of(name: str) -> tuple[int, int]:
    """Return the rank of an evaluation among the stages of a run, and its step if its name has one.

    >>> sorted(["final_greedy", "step_30_greedy", "step_5_greedy", "base_greedy", "start_greedy"], key=stage_of)
    ['base_greedy', 'start_greedy', 'step_5_greedy', 'step_30_greedy', 'final_greedy']
    """
    found = re.match(r"(base|start|final|step_(\d{1,12}))_", name, re.ASCII)
    if not found:
        return FINAL_RANK + 1, 0
    return (2, int(found[2])) if found[2] else (STAGES.index(found[1]), 0)


def _runs_within(path: Path) -> list[Path]:
    if not path.exists():
        raise UserError(f"{path} does not exist. `slimrl view` without a run shows those below outputs/ and runs/.")
    runs = find_runs([path])
    if not runs:
        raise UserError(
            f"{path} is no run: it has neither metrics.jsonl, nor rollouts/step_*.jsonl, nor held_out/*.jsonl. Name "
            "the output_dir of a run."
        )
    if len(runs) > MANY_RUNS:
        raise UserError(f"{path} has {len(runs)} runs, more than the {MANY_RUNS} that one page shows. Name some.")
    return runs


def _names(paths: Sequence[Path]) -> list[str]:
    counts = Counter[str]()
    names = []
    for name in (_plain(path.name) for path in paths):
        counts[name] += 1
        names.append(f"{name}-{counts[name]}" if counts[name] > 1 else name)
    return names


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip(".") or "run"


def _age(path: Path) -> float:
    file = RunDir(path).metrics
    return -(file if file.exists() else path).stat().st_mtime
