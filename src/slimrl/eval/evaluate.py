"""Held-out evaluation: the same tasks every time, one episode each, means with 95% intervals.

Failed rollouts (for example after an exception of the environment) are counted and left out of the means, never scored
0. This module is independent of the player (a model, a script) and of files.
"""

import math
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from slimrl.environments.find import tasks_of
from slimrl.errors import UserError
from slimrl.io.loop_thread import gather_all
from slimrl.io.rows import draw
from slimrl.io.text import hash_number
from slimrl.rollout.episode import EpisodeSpec, RolloutContext, all_metrics, run_episode
from slimrl.rollout.games import self_play_specs
from slimrl.rollout.loop import run_episodes
from slimrl.stats import Estimate, estimate_mean
from slimrl.types import Metrics, Rollout, SamplingParams, Split, Task, Taskset

COUNTS = ("turns", "tokens")  # scores that are counts and not shares, even if all their values are 0 or 1


@dataclass(frozen=True, slots=True)
class HeldOutTask:
    """A task to evaluate on. `env` is the name of the task's environment, without a slash. `split_size` is the number
    of tasks in the split from which the task was drawn."""

    env: str
    taskset: Taskset
    task: Task
    split_size: int

    @property
    def id(self) -> str:
        """The task's id within the evaluation, as in `wordle/test/0`. `task.id` is unique only in one environment."""
        return f"{self.env}/{self.task.id}"


def env_of(task_id: str) -> str:
    """Return the name of the environment in a task's id within an evaluation."""
    return task_id.partition("/")[0]


@dataclass(frozen=True, slots=True)
class EvalPolicy:
    """A policy to evaluate. `play` plays an episode, `num_concurrent` is the maximum number of episodes at once, and
    `text` decodes token ids."""

    play: Callable[[EpisodeSpec], Coroutine[Any, Any, Rollout]]
    num_concurrent: int
    text: Callable[[list[int]], str]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The results in one decoding mode. `scores` has the environment's metrics, such as `exact`, and `tokens`, the
    number of sampled tokens per episode. `rollouts` are in the order of the tasks and include failed rollouts. Each
    `task_id` is the task's id within the evaluation."""

    mode: str
    reward: Estimate
    scores: Mapping[str, Estimate]
    failures: dict[str, int]
    rollouts: tuple[Rollout, ...]


def mode_of(temperature: float) -> str:
    """Return the name of a decoding mode in metrics: `greedy`, `sampled`, or `sampled_0.7`."""
    if temperature == 0.0:
        return "greedy"
    return "sampled" if temperature == 1.0 else f"sampled_{temperature:g}"


def tasks_held_out(tasksets: Mapping[str, Taskset], split: Split, num_examples: int) -> list[HeldOutTask]:
    """Draw `num_examples` tasks from each taskset, the same at every call. `tasksets` has environment names as keys.

    A hash of the ids selects tasks, so that a larger selection includes a smaller one. Raise UserError without tasks.
    """
    splits = [(env, taskset, tasks_of(taskset, split)) for env, taskset in tasksets.items()]
    chosen = [
        HeldOutTask(env, taskset, task, len(tasks))
        for env, taskset, tasks in splits
        for task in draw(tasks, num_examples, lambda task: task.id)
    ]
    if not chosen:
        raise UserError(f"the environments have no tasks in the split `{split}`; check their `args`.")
    return chosen


def draw_sizes(tasks: Sequence[HeldOutTask]) -> dict[str, tuple[int, int]]:
    """Return for each environment the number of drawn tasks, and the number of tasks in the split."""
    sizes = {asked.env: asked.split_size for asked in tasks}
    return {env: (num, sizes[env]) for env, num in Counter(asked.env for asked in tasks).items()}


def make_eval_policy(context: RolloutContext) -> EvalPolicy:
    """Return a policy that samples from the client of `context`. In self-play, the first role's rollout counts."""

    async def play(spec: EpisodeSpec) -> Rollout:
        game = await gather_all(*(run_episode(one, context) for one in self_play_specs(spec)))
        return game[0]

    return EvalPolicy(play, context.num_concurrent, context.chat.full_text)


def play_tasks(
    tasks: Sequence[HeldOutTask],
    eval_policy: EvalPolicy,
    sampling: SamplingParams,
    on_done: Callable[[Rollout], None],
) -> list[Rollout]:
    """Play each task once with `sampling` and its own seed, and return the rollouts in the order of the tasks.
    `on_done` is called with each rollout when it is over."""
    largest = max((len(asked.taskset.roles) for asked in tasks), default=0)  # episodes of a game in self-play
    at_once = max(1, eval_policy.num_concurrent // max(1, largest))

    async def play(asked: HeldOutTask) -> Rollout:
        spec = EpisodeSpec(asked.taskset, asked.task, replace(sampling, seed=_seed(sampling.seed, asked.task)))
        rollout = replace(await eval_policy.play(spec), task_id=asked.id)
        on_done(rollout)
        return rollout

    for taskset in {id(asked.taskset): asked.taskset for asked in tasks}.values():
        taskset.begin_step(f"eval/{sampling.seed}")
    return run_episodes(gather_all(*map(play, tasks), at_once=at_once))


def evaluation_of(mode: str, rollouts: Sequence[Rollout]) -> Evaluation:
    """Build the evaluation of rollouts: means with 95% intervals. Raise UserError if all rollouts failed."""
    good = [rollout for rollout in rollouts if not rollout.failure]
    if not good:
        raise UserError(
            f"all {len(rollouts)} episodes failed; the first: {rollouts[0].failure}: {rollouts[0].failure_detail}"
        )
    return Evaluation(
        mode=mode,
        reward=estimate_mean([rollout.reward for rollout in good]),
        scores={name: estimate_mean(values, counts=name in COUNTS) for name, values in scores_of(good).items()},
        failures=dict(Counter(rollout.failure for rollout in rollouts if rollout.failure)),
        rollouts=tuple(rollouts),
    )


def reward_by_environment(evaluation: Evaluation) -> dict[str, Estimate]:
    """Return the mean reward in each environment that has an episode without failure."""
    rewards: dict[str, list[float]] = {}
    for rollout in evaluation.rollouts:
        if not rollout.failure:
            rewards.setdefault(env_of(rollout.task_id), []).append(rollout.reward)
    return {env: estimate_mean(values) for env, values in rewards.items()}


def scores_of(rollouts: Sequence[Rollout]) -> dict[str, list[float]]:
    """Return the finite values of every metric of the rollouts, and of `tokens`, by name in alphabetical order."""
    values: dict[str, list[float]] = {}
    for rollout, metrics in zip(rollouts, all_metrics(rollouts), strict=True):
        for name, value in {**metrics, "tokens": float(rollout.num_sampled)}.items():
            if math.isfinite(value):
                values.setdefault(name, []).append(value)
    return dict(sorted(values.items()))


def evaluation_metrics(evaluations: Sequence[Evaluation]) -> Metrics:
    """Return the `held_out/...` metrics of evaluations at several temperatures. `held_out/num` is the smallest number
    of rollouts in one of them."""
    metrics: Metrics = {"held_out/num": float(min(e.reward.num for e in evaluations))}
    for evaluation in evaluations:
        name, reward = f"held_out/reward_{evaluation.mode}", evaluation.reward
        metrics |= {f"held_out/{score}_{evaluation.mode}": value.mean for score, value in evaluation.scores.items()}
        # Last, so that an environment's own score with the name `reward` cannot replace the reward.
        metrics |= {name: reward.mean, f"{name}_low": reward.low, f"{name}_high": reward.high}
    return metrics


def _seed(seed: int, task: Task) -> int:
    return hash_number(f"eval/{seed}/{task.id}")
