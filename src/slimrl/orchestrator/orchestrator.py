"""From tasks to a training batch: draw tasks, play a group of episodes on each, turn rewards into advantages.

A group whose advantages are all 0, as when its rewards are equal, carries no signal. Such a group is counted, not
trained on, and replaced by one on a fresh task up to a bound (dynamic sampling, DAPO, 2503.14476). A value head and
distillation learn from every rollout, so with these each group carries a signal. Every rollout that was started is
accounted for: it is trained on, or dropped with a reason.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from slimrl.config.base import describe_faults
from slimrl.config.loss import ResolvedLoss
from slimrl.config.rollout import OrchestratorConfig
from slimrl.environments.base import Taskset, seed_tasksets
from slimrl.errors import RolloutError, UserError
from slimrl.monitor.rollouts import RolloutRecord
from slimrl.orchestrator.advantages import token_advantages, token_rewards
from slimrl.orchestrator.curriculum import Curriculum, Draw
from slimrl.orchestrator.distill import Distillation, Opening, without_teacher
from slimrl.orchestrator.roles import check_groups, num_games, role_advantages
from slimrl.rollout.episode import EpisodeSpec, RolloutContext, mean_metrics, run_groups
from slimrl.rollout.loop import run_episodes
from slimrl.rollout.self_play import self_play_specs
from slimrl.transport.base import Batch
from slimrl.types import Metrics, Rollout, Sample, SamplingParams

Record = Callable[[int, Sequence[RolloutRecord]], None]


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one task that did not fail, and the advantages (G, K) of their turns.

    `position` is the task's number in the curriculum. `opening` is what a teacher reads in place of their opening.
    """

    position: int
    rollouts: tuple[Rollout, ...]
    advantages_GK: tuple[tuple[float, ...], ...]
    has_signal: bool
    opening: Opening = None


class OrchestratorState(BaseModel, frozen=True, extra="forbid", strict=True, allow_inf_nan=False):
    """All that a run needs to go on: the number of tasks drawn so far, which is a position in the curriculum, and the
    running means of the roles' rewards (`orchestrator/roles.py`)."""

    data_position: int = Field(default=0, ge=0)
    role_means: Mapping[str, float] = Field(default={})


@dataclass
class Orchestrator:
    """Collects the batches of a run. `record` is given all rollouts of each step, and `distillation` adds a teacher's
    log-probabilities to the advantages. Raises UserError if the rollouts of a group cannot be compared."""

    tasksets: Sequence[Taskset]
    context: RolloutContext
    config: OrchestratorConfig
    loss: ResolvedLoss
    seed: int
    record: Record
    distillation: Distillation | None = None

    def __post_init__(self) -> None:
        for taskset in self.tasksets:
            check_groups(taskset, self.config.rollouts_per_example, self.loss)
        self._curriculum = Curriculum(self.tasksets, f"rl/{self.seed}")
        self._num_drawn = 0
        self._role_means: dict[str, float] = {}

    @property
    def state(self) -> dict[str, Any]:
        """All that a run needs to go on from here, as JSON."""
        return OrchestratorState(data_position=self._num_drawn, role_means=self._role_means).model_dump()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`; an empty one is that of a new run. Raises UserError if it is none."""
        try:
            restored = OrchestratorState.model_validate(dict(state))
        except ValidationError as error:
            raise UserError(
                f"the orchestrator's state in the checkpoint's progress.json cannot be what slimrl wrote: "
                f"{describe_faults(error)}. Delete that checkpoint and `--resume` continues from the one before it."
            ) from None
        self._num_drawn, self._role_means = restored.data_position, dict(restored.role_means)

    def collect(self, step: int) -> Batch:
        """Play until the batch is full of groups with a signal, or the resampling bound is reached. Raises UserError
        if every rollout failed."""
        began = time.perf_counter()
        wanted = self.config.batch_size // self.config.rollouts_per_example
        bound = wanted * self.config.resample_factor
        played: list[Rollout] = []
        groups: list[Group] = []
        num_drawn = 0
        teacher = self.distillation.tasksets if self.distillation else ()
        seed_tasksets([*self.tasksets, *teacher], f"rl/{self.seed}/{step}")
        # Only as many groups as are missing are drawn at a time: more would be sampled and thrown away.
        while (missing := wanted - sum(group.has_signal for group in groups)) > 0 and num_drawn < bound:
            draws = [self._draw() for _ in range(min(missing, bound - num_drawn))]
            num_drawn += len(draws)
            rollouts, openings = self._play(draws)
            played += rollouts
            groups += self._grade(draws, rollouts, openings)
        self.record(step, self._records(groups, played))  # before an error, so that the failures can be looked at
        if not groups:
            raise UserError(_all_failed(played))
        metrics = _metrics(played, groups, num_drawn) | _speed(played, time.perf_counter() - began)
        metrics |= self._reward_by_environment(groups)
        samples, more = self._samples([group for group in groups if group.has_signal])
        return Batch(samples, self.config.sampling.temperature, metrics | more, self.state)

    def _draw(self) -> Draw:
        self._num_drawn += 1
        return self._curriculum.draw(self._num_drawn - 1)

    def _play(self, draws: Sequence[Draw]) -> tuple[list[Rollout], list[Opening]]:
        """The rollouts, `rollouts_per_example` of each draw, and the opening that a teacher reads for each draw."""
        G = self.config.rollouts_per_example
        games = [
            self_play_specs(EpisodeSpec(draw.taskset, draw.task, self._sampling(draw.position, number)))
            for draw in draws
            for number in range(num_games(draw.taskset, G))
        ]
        played = run_episodes(run_groups(games, self.context))
        rollouts = [rollout for game in played for rollout in game]
        if not self.distillation:
            return rollouts, [None] * len(draws)
        openings = self.distillation.openings(draws)
        # A game in R roles gives R rollouts, so the rollouts of draw n are n * G to (n + 1) * G with self-play, too.
        readable = [self.distillation.check_readable(rollout, openings[n // G]) for n, rollout in enumerate(rollouts)]
        return readable, [None if isinstance(opening, RolloutError) else opening for opening in openings]

    def _sampling(self, position: int, number: int) -> SamplingParams:
        """The sampling parameters of an episode. Its seed depends on the run's seed and its own number alone, so that
        a resumed run samples the same tokens."""
        digest = hashlib.sha256(f"{self.seed}/{position}/{number}".encode()).digest()
        seed = int.from_bytes(digest[:6], "big")
        return self.config.sampling.params(self.config.sampling.temperature, seed)

    def _grade(self, draws: Sequence[Draw], rollouts: Sequence[Rollout], openings: Sequence[Opening]) -> list[Group]:
        """A group for each draw of which at least one rollout did not fail."""
        G = self.config.rollouts_per_example
        groups = []
        for number, draw in enumerate(draws):
            kept = tuple(r for r in rollouts[number * G : (number + 1) * G] if not r.failure)
            if kept:
                advantages_GK = tuple(role_advantages(kept, self.loss, self._role_means, str(draw.env)))
                has_signal = every_rollout_has_signal(self.loss) or any(
                    value != 0.0 for values in advantages_GK for value in values
                )
                groups.append(Group(draw.position, kept, advantages_GK, has_signal, openings[number]))
        return groups

    def _samples(self, groups: Sequence[Group]) -> tuple[tuple[Sample, ...], Metrics]:
        """The samples to train on, and the metrics of distillation if there is a teacher."""
        samples = [sample for group in groups for sample in _samples(group, self.loss)]
        if not self.distillation:
            return tuple(without_teacher(sample, self.loss) for sample in samples), {}
        began = time.perf_counter()
        openings = [group.opening for group in groups for _ in group.rollouts]
        distilled, metrics = self.distillation.apply(samples, openings, self.loss, self.config.sampling.temperature)
        return distilled, metrics | {"time/teacher_s": time.perf_counter() - began}

    def _reward_by_environment(self, groups: Sequence[Group]) -> Metrics:
        """With several environments, the mean reward of each of those that have rollouts in this step."""
        labels = self.config.labels
        if len(labels) == 1:
            return {}
        rewards: dict[str, list[float]] = {}
        for group in groups:
            label = labels[group.position % len(labels)]  # the curriculum goes round the environments
            rewards.setdefault(label, []).extend(rollout.reward for rollout in group.rollouts)
        return {f"reward/mean/{label}": sum(values) / len(values) for label, values in sorted(rewards.items())}

    def _records(self, groups: Sequence[Group], played: Sequence[Rollout]) -> list[RolloutRecord]:
        graded = [pair for group in groups for pair in zip(group.rollouts, group.advantages_GK, strict=True)]
        failed = [(rollout, ()) for rollout in played if rollout.failure]
        text = self.context.chat.full_text
        return [RolloutRecord(rollout, values, text(list(rollout.token_ids_T))) for rollout, values in graded + failed]


def every_rollout_has_signal(loss: ResolvedLoss) -> bool:
    """Whether a rollout is worth training on even where all rollouts of its group earned the same."""
    return loss.has_critic or loss.teacher_tau > 0 or loss.student_tau > 0


def _all_failed(played: Sequence[Rollout]) -> str:
    reasons = Counter(rollout.failure for rollout in played)
    counts = ", ".join(f"{count} x {reason}" for reason, count in reasons.most_common())
    return (
        f"all {len(played)} rollouts of this step failed ({counts}), so there is nothing to train on. The first one: "
        f"{played[0].failure_detail}. Correct the environment and continue with `--resume`."
    )


def _samples(group: Group, loss: ResolvedLoss) -> list[Sample]:
    """A group's rollouts as the trainer sees them."""
    return [
        Sample(
            token_ids_T=rollout.token_ids_T,
            loss_mask_T=rollout.loss_mask_T,
            logprobs_T=rollout.logprobs_T,
            advantages_T=token_advantages(rollout, advantages_K),
            rewards_T=token_rewards(rollout) if loss.has_critic else (),
            version=min(v for v, mask in zip(rollout.versions_T, rollout.loss_mask_T, strict=True) if mask),
        )
        for rollout, advantages_K in zip(group.rollouts, group.advantages_GK, strict=True)
    ]


def _metrics(played: Sequence[Rollout], groups: Sequence[Group], num_drawn: int) -> Metrics:
    good = [rollout for group in groups for rollout in group.rollouts]
    trained = sum(len(group.rollouts) for group in groups if group.has_signal)
    metrics: Metrics = {
        "rollout/num": float(len(played)),
        "rollout/num_trained": float(trained),
        "rollout/tokens_sampled": float(sum(rollout.num_sampled for rollout in played)),
    }
    # Rollouts started = trained + dropped, always: those without a signal are dropped with a reason of their own.
    drops = Counter(rollout.failure for rollout in played if rollout.failure)
    if zero_signal := len(good) - trained:
        drops["zero_signal"] = zero_signal
    metrics |= {f"drop/{reason}": float(count) for reason, count in drops.items()}
    metrics["reward/zero_signal_groups"] = sum(not group.has_signal for group in groups) / num_drawn
    rewards = [rollout.reward for rollout in good]
    mean, means = sum(rewards) / len(rewards), mean_metrics(good)
    metrics |= {
        "reward/mean": mean,
        "reward/std": (sum((reward - mean) ** 2 for reward in rewards) / len(rewards)) ** 0.5,
        "reward/min": min(rewards),
        "reward/max": max(rewards),
        "rollout/tokens_sampled_mean": sum(rollout.num_sampled for rollout in good) / len(good),
        "rollout/truncated": means.pop("truncated"),
        "rollout/turns_mean": means.pop("turns"),
    }
    # The means that are left are those of the environment, and `unfinished` and `context_full` of the agent loop.
    return metrics | {f"env/{name}": mean for name, mean in means.items()}


def _speed(played: Sequence[Rollout], seconds: float) -> Metrics:
    sampled = sum(rollout.num_sampled for rollout in played)
    return {"time/rollout_s": seconds, "perf/tokens_sampled_per_s": sampled / seconds}
