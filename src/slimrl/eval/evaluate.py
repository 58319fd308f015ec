"""Held-out evaluation: the same tasks every time, one episode each, mean reward with a 95% interval.

Rollouts that failed (an environment that raised, say) are counted and left out of the mean, never scored 0.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from slimrl.environments.base import Taskset, tasks_of
from slimrl.environments.rollout import Attempt, Player, mean_metrics, run_attempts
from slimrl.errors import UserError
from slimrl.monitor.stats import Estimate, estimate_mean
from slimrl.types import Metrics, Rollout, SamplingParams, Split, Task


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What one way of decoding earned. `scores` are means of what the environment reports, such as `exact`."""

    mode: str
    reward: Estimate
    scores: Metrics
    failures: dict[str, int]
    rollouts: tuple[Rollout, ...]


def mode_of(temperature: float) -> str:
    """The name of a way of decoding, as used in metrics: `greedy`, `sampled`, or `sampled_0.7`."""
    if temperature == 0.0:
        return "greedy"
    return "sampled" if temperature == 1.0 else f"sampled_{temperature:g}"


def held_out_tasks(tasksets: Sequence[Taskset], split: Split, num_examples: int) -> list[tuple[Taskset, Task]]:
    """The first `num_examples` tasks of each taskset's split. Raises UserError if there are none."""
    chosen = [(taskset, task) for taskset in tasksets for task in tasks_of(taskset, split)[:num_examples]]
    if not chosen:
        raise UserError(f"the environments have no tasks in the split `{split}`; check their `args`.")
    return chosen


def evaluate(
    tasks: Sequence[tuple[Taskset, Task]],
    player: Player,
    sampling: SamplingParams,
    on_done: Callable[[], None],
) -> Evaluation:
    """Play every task once with `sampling`, each with a seed of its own. Raises UserError if every episode fails."""
    attempts = [Attempt(taskset, task, replace(sampling, seed=_seed(sampling.seed, task))) for taskset, task in tasks]
    rollouts = asyncio.run(run_attempts(attempts, player, on_done))
    good = [rollout for rollout in rollouts if not rollout.failure]
    if not good:
        raise UserError(
            f"all {len(rollouts)} episodes failed; the first: {rollouts[0].failure}: {rollouts[0].failure_detail}"
        )
    return Evaluation(
        mode=mode_of(sampling.temperature),
        reward=estimate_mean([rollout.reward for rollout in good]),
        scores=mean_metrics(good),
        failures=dict(Counter(rollout.failure for rollout in rollouts if rollout.failure)),
        rollouts=tuple(rollouts),
    )


def evaluation_metrics(evaluations: Sequence[Evaluation]) -> Metrics:
    """The `held_out/...` metrics of one evaluation at several temperatures; `num` is what every number has at least."""
    metrics: Metrics = {"held_out/num": float(min(e.reward.num for e in evaluations))}
    for evaluation in evaluations:
        name, reward = f"held_out/reward_{evaluation.mode}", evaluation.reward
        metrics |= {f"held_out/{score}_{evaluation.mode}": value for score, value in evaluation.scores.items()}
        # Last, so that no environment's own score of the name `reward` takes the reward's place.
        metrics |= {name: reward.mean, f"{name}_low": reward.low, f"{name}_high": reward.high}
    return metrics


def _seed(seed: int, task: Task) -> int:
    return int.from_bytes(hashlib.sha256(f"eval/{seed}/{task.id}".encode()).digest()[:6], "big")
