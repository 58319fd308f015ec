"""From tasks to a training batch: draw tasks, play a group of episodes on each, turn rewards into advantages.

A group whose advantages are all 0, as when its rewards are equal, carries no signal: such groups are counted and
replaced by fresh tasks up to a bound, never trained on (dynamic sampling, DAPO, 2503.14476). A value head does not
compare the rollouts of a group and learns from all of them, and so does distillation. Every rollout started is
accounted for: trained, or dropped with a reason.
"""

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slimrl.config.loss import ResolvedLoss
from slimrl.config.rollout import OrchestratorConfig
from slimrl.environments.base import Taskset
from slimrl.errors import RolloutError, UserError
from slimrl.monitor.rollouts import RolloutRecord
from slimrl.orchestrator.advantages import on_tokens
from slimrl.orchestrator.curriculum import Curriculum, Draw
from slimrl.orchestrator.distill import Distillation, Opening, with_entropy_bonus
from slimrl.orchestrator.roles import check_groups, num_tables, role_advantages
from slimrl.rollout.episode import EpisodeSpec, RolloutContext, mean_metrics, run_groups
from slimrl.rollout.self_play import self_play_specs
from slimrl.transport.base import Batch
from slimrl.types import Metrics, Rollout, Sample, SamplingParams

Record = Callable[[int, Sequence[RolloutRecord]], None]


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one task that did not fail, with the advantages of their turns (G, K), and what a teacher reads
    in place of their opening."""

    position: int
    rollouts: tuple[Rollout, ...]
    advantages_GK: tuple[tuple[float, ...], ...]
    has_signal: bool
    opening: Opening = None


class Orchestrator:
    """Collects batches. `position` counts the tasks drawn so far, `role_means` are those of `orchestrator/roles.py`;
    set both to continue a run. Set `distillation`, before the first batch, to have a teacher's scores count."""

    def __init__(
        self,
        tasksets: Sequence[Taskset],
        context: RolloutContext,
        config: OrchestratorConfig,
        loss: ResolvedLoss,
        seed: int,
        record: Record,
    ) -> None:
        for taskset in tasksets:
            check_groups(taskset, config.rollouts_per_example, loss)
        self._curriculum = Curriculum(tasksets, f"rl/{seed}")
        self._player = context
        self._config = config
        self._loss = loss
        self._seed = seed
        self._record = record
        self.position = 0
        self.role_means: dict[str, float] = {}
        self.distillation: Distillation | None = None

    def collect(self, step: int) -> Batch:
        """Play until the batch is full of groups with a signal, or the resampling bound is reached."""
        began = time.perf_counter()
        wanted = self._config.batch_size // self._config.rollouts_per_example
        bound = wanted * self._config.resample_factor
        played: list[Rollout] = []
        groups: list[Group] = []
        num_drawn = 0
        while (missing := wanted - sum(group.has_signal for group in groups)) > 0 and num_drawn < bound:
            draws = [self._draw() for _ in range(min(missing, bound - num_drawn))]
            num_drawn += len(draws)
            rollouts, openings = self._play(draws)
            played += rollouts
            groups += self._grade(draws, rollouts, openings)
        self._record(step, self._records(groups, played))
        if not groups:
            raise UserError(_nothing_left(played))
        metrics = _metrics(played, groups, num_drawn) | _speed(played, time.perf_counter() - began)
        samples, more = self._samples([group for group in groups if group.has_signal])
        temperature = self._config.sampling.temperature
        return Batch(samples, temperature, self.position, metrics | more, dict(self.role_means))

    def _draw(self) -> Draw:
        self.position += 1
        return self._curriculum.draw(self.position - 1)

    def _play(self, draws: Sequence[Draw]) -> tuple[list[Rollout], list[Opening]]:
        """The rollouts, `rollouts_per_example` of each draw, and the opening that a teacher reads for each draw."""
        G = self._config.rollouts_per_example
        tables = [
            self_play_specs(EpisodeSpec(draw.taskset, draw.task, self._sampling(draw.position, number)))
            for draw in draws
            for number in range(num_tables(draw.taskset, G))
        ]
        played = asyncio.run(run_groups(tables, self._player))
        rollouts = [rollout for table in played for rollout in table]
        if not self.distillation:
            return rollouts, [None] * len(draws)
        openings = self.distillation.openings(draws)
        rollouts = [
            self.distillation.readable(rollout, openings[number // G]) for number, rollout in enumerate(rollouts)
        ]
        return rollouts, [None if isinstance(opening, RolloutError) else opening for opening in openings]

    def _sampling(self, position: int, number: int) -> SamplingParams:
        digest = hashlib.sha256(f"{self._seed}/{position}/{number}".encode()).digest()
        seed = int.from_bytes(digest[:6], "big")
        return self._config.sampling.params(self._config.sampling.temperature, seed)

    def _grade(self, draws: Sequence[Draw], rollouts: Sequence[Rollout], openings: Sequence[Opening]) -> list[Group]:
        G = self._config.rollouts_per_example
        groups = []
        for number, draw in enumerate(draws):
            kept = tuple(r for r in rollouts[number * G : (number + 1) * G] if not r.failure)
            if kept:
                advantages_GK = tuple(role_advantages(kept, self._loss, self.role_means, str(draw.env)))
                has_signal = has_signal_of_its_own(self._loss) or any(
                    value != 0.0 for values in advantages_GK for value in values
                )
                groups.append(Group(draw.position, kept, advantages_GK, has_signal, openings[number]))
        return groups

    def _samples(self, groups: Sequence[Group]) -> tuple[tuple[Sample, ...], Metrics]:
        """What is trained on, with the teacher's part if there is one, and what there is to tell of that."""
        samples = [sample for group in groups for sample in _samples(group, self._loss)]
        if not self.distillation:
            return tuple(with_entropy_bonus(sample, self._loss) for sample in samples), {}
        began = time.perf_counter()
        openings = [group.opening for group in groups for _ in group.rollouts]
        taught, metrics = self.distillation.taught(samples, openings, self._loss, self._config.sampling.temperature)
        return taught, metrics | {"time/teacher_s": time.perf_counter() - began}

    def _records(self, groups: Sequence[Group], played: Sequence[Rollout]) -> list[RolloutRecord]:
        graded = [pair for group in groups for pair in zip(group.rollouts, group.advantages_GK, strict=True)]
        failed = [(rollout, ()) for rollout in played if rollout.failure]
        text = self._player.chat.full_text
        return [RolloutRecord(rollout, values, text(list(rollout.token_ids_T))) for rollout, values in graded + failed]


def has_signal_of_its_own(loss: ResolvedLoss) -> bool:
    """Whether every rollout teaches something, whatever the others of its group earned."""
    return loss.has_critic or loss.teacher_tau > 0 or loss.student_tau > 0


def _nothing_left(played: Sequence[Rollout]) -> str:
    reasons = Counter(rollout.failure for rollout in played)
    counts = ", ".join(f"{count} x {reason}" for reason, count in reasons.most_common())
    return (
        f"all {len(played)} rollouts of this step failed ({counts}), so there is nothing to train on. The first one: "
        f"{played[0].failure_detail}. Mend the environment and continue with `--resume`."
    )


def _samples(group: Group, loss: ResolvedLoss) -> list[Sample]:
    """A group's rollouts as the trainer sees them."""
    return [
        Sample(
            token_ids_T=rollout.token_ids_T,
            loss_mask_T=rollout.loss_mask_T,
            logprobs_T=rollout.logprobs_T,
            advantages_T=on_tokens(rollout, advantages_K, loss),
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
    return metrics | {f"env/{name}": mean for name, mean in means.items()}


def _speed(played: Sequence[Rollout], seconds: float) -> Metrics:
    sampled = sum(rollout.num_sampled for rollout in played)
    return {"time/rollout_s": seconds, "perf/tokens_sampled_per_s": sampled / seconds}
