"""The held-out episodes of finished runs, and what training adds to their rewards, task by task."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from slimrl.monitor.rollouts import read_rollouts
from slimrl.stats import paired_difference
from slimrl.types import Message, Rollout

MODES = ("greedy", "sampled")
REWARDS = "rewards.json"
STAGES = {"start": "before RL", "final": "after RL"}


def finished_episodes(run: Path, stage: str, mode: str) -> list[Rollout]:
    """The episodes that came to an end, in the order of the tasks. `stage` is the evaluation's name in its file."""
    rollouts = [record.rollout for record in read_rollouts(run / "held_out" / f"{stage}_{mode}.jsonl")]
    return [rollout for rollout in rollouts if not rollout.failure]


def keep_rewards(run: Path, kept: Path) -> None:
    """Keep in `rewards.json` what RL adds to each held-out task that failed neither before it nor after, for rollouts
    are not kept: by decoding, of each task the reward before and after."""
    table: dict[str, dict[str, tuple[float, float]]] = {}
    for mode in MODES:
        before, after = (
            {rollout.task_id: round(rollout.reward, 6) for rollout in finished_episodes(run, stage, mode)}
            for stage in ("start", "final")
        )
        table[mode] = {task: (before[task], after[task]) for task in before if task in after}
    (kept / REWARDS).write_text(json.dumps(table) + "\n")


def rises(seeds: Sequence[Path], mode: str, counts: Callable[[str], bool] = lambda _: True) -> dict[str, Any]:
    """What RL adds to the reward of the same held-out tasks, with 95% intervals over tasks: of each seed that is kept,
    and together, the mean over seeds of each task taken first. `counts` chooses tasks by their ids."""
    rewards = [json.loads((seed / REWARDS).read_text())[mode] for seed in seeds]
    tasks = [task for task in rewards[0] if counts(task) and all(task in seed for seed in rewards)]
    before, after = ([[seed[task][stage] for task in tasks] for seed in rewards] for stage in (0, 1))
    for stage in (before, after):
        stage.append([fmean(task) for task in zip(*stage, strict=True)])
    names = [*(seed.name for seed in seeds), "together"]
    return {name: asdict(paired_difference(b, a)) for name, a, b in zip(names, before, after, strict=True)}


def transcript(run: Path, num: int) -> str:
    """The first held-out episodes before and after RL, without examples in the prompt: what the policy was asked, and
    what it wrote."""
    stages = {name: finished_episodes(run, stage, "sampled")[:num] for stage, name in STAGES.items()}
    lines = [f"The first {num} held-out episodes of {run.name}, at temperature 1, before and after RL."]
    for pair in zip(*stages.values(), strict=True):
        for name, rollout in zip(stages, pair, strict=True):
            own = rollout.messages[-2 * len(rollout.turn_rewards) :]  # behind the examples
            lines += ["", f"**{rollout.task_id}, {name}**: reward {rollout.reward:.3f}", "", *_transcript_lines(own)]
    return "\n".join(lines) + "\n"


def _transcript_lines(messages: Sequence[Message]) -> list[str]:
    text = [f"{_indent(message)}{line}" for message in messages for line in message["content"].splitlines()]
    return ["```text", *text, "```"]


def _indent(message: Mapping[str, object]) -> str:
    return "" if message["role"] == "assistant" else "    "
