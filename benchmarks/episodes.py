"""The held-out episodes of finished runs, and what training adds to their rewards, task by task."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from slimrl.monitor.rollouts import read_rollouts
from slimrl.monitor.stats import paired_difference
from slimrl.types import Rollout

MODES = ("greedy", "sampled")


def held_out(run: Path, stage: str, mode: str) -> list[Rollout]:
    """Those that came to an end, in the order of the tasks. `stage` is the evaluation's name in its file."""
    rollouts = [record.rollout for record in read_rollouts(run / "held_out" / f"{stage}_{mode}.jsonl")]
    return [rollout for rollout in rollouts if not rollout.failure]


def rises(runs: Sequence[Path], mode: str, counts: Callable[[str], bool] = lambda _: True) -> dict[str, Any]:
    """What RL adds to the reward of the same held-out tasks, those that failed nowhere, with 95% intervals over tasks:
    of each run, and together, the mean over runs of each task taken first. `counts` chooses tasks by their ids."""
    before, after = (
        [{rollout.task_id: rollout.reward for rollout in held_out(run, stage, mode)} for run in runs]
        for stage in ("start", "final")
    )
    tasks = [task for task in before[0] if counts(task) and all(task in rewards for rewards in (*before, *after))]
    old, new = ([[rewards[task] for task in tasks] for rewards in stage] for stage in (before, after))
    for stage in (old, new):
        stage.append([fmean(task) for task in zip(*stage, strict=True)])
    names = [*(run.name for run in runs), "together"]
    return {name: asdict(paired_difference(b, a)) for name, a, b in zip(names, old, new, strict=True)}
