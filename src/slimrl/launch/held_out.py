"""Held-out evaluation at the stages of a run, kept on disk so that a resumed run does not measure a stage again."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from slimrl.environments.base import Taskset
from slimrl.environments.rollout import Player
from slimrl.eval.evaluate import Evaluation, evaluate, evaluation_metrics, held_out_tasks
from slimrl.monitor.console import RunConsole
from slimrl.monitor.files import replace_file
from slimrl.monitor.rollouts import RolloutRecord, write_rollouts
from slimrl.monitor.stats import Estimate
from slimrl.monitor.summary import Stage
from slimrl.types import Metrics, SamplingParams, Split


@dataclass(frozen=True, slots=True)
class HeldOutPlan:
    """What to evaluate on and how: one way of decoding for each entry of `samplings`."""

    tasksets: Sequence[Taskset]
    split: Split
    num_examples: int
    samplings: Sequence[SamplingParams]


class HeldOut:
    """Evaluates the policy as it stands. Results go to `output_dir/held_out/<stage>.json`, every rollout beside it."""

    def __init__(self, plan: HeldOutPlan, player: Player, output_dir: Path, console: RunConsole) -> None:
        self._plan = plan
        self._tasks = held_out_tasks(plan.tasksets, plan.split, plan.num_examples)
        self._player = player
        self._directory = output_dir / "held_out"
        self._console = console

    def measure(self, slug: str, name: str) -> tuple[Stage, Metrics]:
        """Evaluate now. `slug` names the files, `name` the stage in the closing table."""
        evaluations = [self._evaluate(name, sampling) for sampling in self._plan.samplings]
        for evaluation in evaluations:
            records = [RolloutRecord(rollout, 0.0, self._text(rollout.token_ids_T)) for rollout in evaluation.rollouts]
            write_rollouts(self._directory / f"{slug}_{evaluation.mode}.jsonl", records)
        held_out = {evaluation.mode: evaluation.reward for evaluation in evaluations}
        metrics = evaluation_metrics(evaluations)
        content = {
            "name": name,
            "held_out": {mode: _without_nan(asdict(estimate)) for mode, estimate in held_out.items()},
            "metrics": _without_nan(metrics),
        }
        replace_file(self._path(slug), [json.dumps(content, indent=1, allow_nan=False).encode()])
        return Stage(name, held_out), metrics

    def recall(self, slug: str) -> tuple[Stage, Metrics] | None:
        """What an earlier process of this run measured, if it did."""
        if not self._path(slug).exists():
            return None
        content = json.loads(self._path(slug).read_text())
        held_out = {mode: Estimate(**_with_nan(estimate)) for mode, estimate in content["held_out"].items()}
        return Stage(content["name"], held_out), _with_nan(content["metrics"])

    def _evaluate(self, name: str, sampling: SamplingParams) -> Evaluation:
        how = "greedy" if sampling.temperature == 0 else f"at temperature {sampling.temperature:g}"
        with self._console.progress(f"held-out evaluation, {name}, {how}", len(self._tasks)) as bar:
            evaluation = evaluate(self._tasks, self._player, sampling, bar.advance)
        for reason, count in evaluation.failures.items():
            self._console.note(f"{count} of {len(self._tasks)} episodes were left out: {reason}", style="yellow")
        return evaluation

    def _text(self, token_ids: Sequence[int]) -> str:
        return self._player.chat.full_text(list(token_ids))

    def _path(self, slug: str) -> Path:
        return self._directory / f"{slug}.json"


def _without_nan(values: Mapping[str, float]) -> dict[str, float | None]:
    """JSON has no nan (an interval from a single episode, say): null stands for it."""
    return {key: None if math.isnan(value) else value for key, value in values.items()}


def _with_nan(values: Mapping[str, float | None]) -> dict[str, Any]:
    return {key: math.nan if value is None else value for key, value in values.items()}
