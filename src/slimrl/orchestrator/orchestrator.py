"""Collects training batches: draws tasks, plays a group of episodes of each task, computes advantages from rewards.

A group gives no gradient if all its advantages are 0, for example because its rewards are equal. Groups without a
gradient are counted and replaced with groups of new tasks, up to a limit (dynamic sampling, DAPO, 2503.14476). With a
value head or distillation every group has a gradient. The metrics count every started rollout, either as trained on or
as dropped for a reason.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from slimrl.config.loss import ResolvedLoss
from slimrl.config.monitors import MonitorsConfig
from slimrl.config.rollout import OrchestratorConfig
from slimrl.errors import RolloutError, UserError
from slimrl.io.text import hash_number
from slimrl.monitor.health.measure import measure
from slimrl.monitor.rollouts import RolloutRecord
from slimrl.orchestrator.advantages import token_advantages, token_rewards
from slimrl.orchestrator.curriculum import Curriculum
from slimrl.orchestrator.distill import Distillation, Opening, without_teacher
from slimrl.orchestrator.pool import Games, PlayedGroup, Pool
from slimrl.orchestrator.roles import check_groups, load_estimate, num_games, role_advantages
from slimrl.orchestrator.state import OrchestratorState, read_state
from slimrl.orchestrator.step_metrics import age_metrics, rollout_metrics
from slimrl.orchestrator.watch import WatchedClient
from slimrl.rollout.episode import EpisodeSpec, RolloutContext
from slimrl.rollout.games import self_play_specs
from slimrl.transport.base import Batch
from slimrl.types import Metrics, Rollout, Sample, SamplingParams, Taskset

Record = Callable[[int, Sequence[RolloutRecord]], None]


@dataclass(frozen=True, slots=True)
class Group:
    """The successful rollouts of one task, and the advantages (G, K) of their turns.

    `position` is the task's position in the curriculum. `version` is the policy's version when the group was issued. A
    teacher reads `opening` in place of the rollouts' opening.
    """

    position: int
    version: int
    rollouts: tuple[Rollout, ...]
    advantages_GK: tuple[tuple[float, ...], ...]
    has_signal: bool
    opening: Opening = None


@dataclass
class Orchestrator:
    """Collects the batches of a run. `record` receives all rollouts of each step. `distillation` adds a teacher's
    log-probabilities to the advantages. A batch contains only groups that were issued at most `max_async_level`
    versions ago. The constructor raises UserError if the rollouts of a group cannot be compared (`check_groups`)."""

    tasksets: Sequence[Taskset]
    context: RolloutContext
    config: OrchestratorConfig
    loss: ResolvedLoss
    seed: int
    record: Record
    distillation: Distillation | None = None
    max_async_level: int = 0
    monitors: MonitorsConfig = field(default_factory=MonitorsConfig)

    def __post_init__(self) -> None:
        self.loss = load_estimate(self.loss)
        for taskset in self.tasksets:
            check_groups(taskset, self.config.rollouts_per_example, self.loss)
        self._curriculum = Curriculum(self.tasksets, f"rl/{self.seed}")
        self._num_drawn = 0
        self._role_means: dict[str, float] = {}
        self._watched = WatchedClient(self.context.client)
        largest = max(len(taskset.roles) for taskset in self.tasksets)
        self._pool = Pool(replace(self.context, client=self._watched), self.max_async_level, largest)
        self._collected_s = 0.0  # time of the last batch
        self._to_replay: Sequence[int] = ()  # groups in flight at the time of the checkpoint

    @property
    def state(self) -> dict[str, Any]:
        """The state that a run needs to continue from this point, as JSON values."""
        return OrchestratorState(
            data_position=self._num_drawn,
            num_environments=len(self.tasksets),
            role_means=self._role_means,
            waiting=tuple(self._pool.waiting),
            in_flight=(*self._to_replay, *self._pool.in_flight),
        ).model_dump(mode="json")

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state`, which is empty in a new run. Saved groups that do not fit the current settings are
        played again. Raises UserError if the state is malformed."""
        restored = read_state(state)
        self._num_drawn, self._role_means = restored.data_position, dict(restored.role_means)
        G, has_same_tasks = self.config.rollouts_per_example, restored.num_environments == len(self.tasksets)
        usable = [group for group in restored.waiting if has_same_tasks and len(group.rollouts) == G]
        self._pool.restore([self._with_task_data(group) for group in usable])
        other = [group.position for group in restored.waiting if group not in usable]
        self._to_replay = (*other, *restored.in_flight)

    def _with_task_data(self, group: PlayedGroup) -> PlayedGroup:
        data = self._curriculum.draw(group.position).task.data
        return replace(group, rollouts=tuple(replace(rollout, task_data=data) for rollout in group.rollouts))

    def close(self) -> Metrics:
        """Stop the episodes in flight. Return, as metrics, the numbers of started rollouts that are not trained on."""
        lengths = self._lengths()
        self._pool.close()
        return lengths

    def collect(self, step: int) -> Batch:
        """Play groups until enough of them have a gradient, or until the resampling limit. Return the batch. Raises
        UserError if every rollout failed."""
        began, waited_s = time.perf_counter(), 0.0
        wanted = self.config.batch_size // self.config.rollouts_per_example
        bound = wanted * self.config.resample_factor
        played: list[PlayedGroup] = []
        groups: list[Group] = []
        self._begin_step(step)
        num_stale = self._replay(step)
        num_started, num_looked = num_stale, 0
        while (missing := wanted - sum(group.has_signal for group in groups)) > 0 and num_looked < bound:
            num = min(missing, bound - num_looked)
            num_started += self._fill(step, num)
            idle_s = self._watched.idle_s()
            taken = self._pool.take(num)
            waited_s += self._watched.idle_s() - idle_s
            num_looked += len(taken)
            taken, openings = self._open(taken)
            played += taken
            groups += self._grade(taken, openings)
        rollouts = [rollout for group in played for rollout in group.rollouts]
        self.record(step, self._records(groups, played))  # before an error, so that users can read the failures
        if not groups:
            raise UserError(_all_failed(rollouts))
        G, with_signal = self.config.rollouts_per_example, [group for group in groups if group.has_signal]
        num_trained = sum(len(group.rollouts) for group in with_signal)
        metrics = (
            rollout_metrics(rollouts, G * num_started, G * num_stale, num_trained)
            | self._speed(rollouts, began)
            | self._measure(played)
        )
        metrics["time/env_wait_s"] = waited_s
        metrics["reward/zero_signal_groups"] = (len(groups) - len(with_signal)) / num_looked
        metrics |= self._reward_by_environment(groups) | age_metrics([step - group.version for group in with_signal])
        metrics |= self._lengths() | {"async/sampler_idle": self._watched.idle_share()}
        samples, more = self._samples(groups, step)
        return Batch(samples, self.config.sampling.temperature, metrics | more, self.state)

    def _begin_step(self, step: int) -> None:
        """Seed the tasksets' random generators for this step, unless episodes are in flight."""
        for taskset in (*self.tasksets, *(self.distillation.tasksets if self.distillation else ())):
            taskset.begin_step(None if self._pool.in_flight else f"rl/{self.seed}/{step}")

    def _replay(self, step: int) -> int:
        """Start again the groups that were in flight in an earlier process. Drop the groups that are too old for a
        batch at `step`, and start their tasks again. Return the number of dropped groups."""
        for position in self._to_replay:
            self._issue(position)
        self._to_replay = ()
        stale = self._pool.drop_before(step - self.max_async_level)
        for position in stale:
            self._issue(position)
        return len(stale)

    def _fill(self, step: int, num: int) -> int:
        """Issue new groups, and return their number. Afterwards the pool has `num` groups for this batch, and all
        groups for the later batches that `max_async_level` allows."""
        lag = max(0, step - self._watched.version)
        assert lag <= self.max_async_level, f"the sampler is {lag} versions behind step {step}"
        wanted = self.config.batch_size // self.config.rollouts_per_example
        room = num + wanted * (self.max_async_level - lag) - len(self._pool.in_flight) - len(self._pool.waiting)
        for _ in range(room):
            self._issue(self._num_drawn)
            self._num_drawn += 1
        return max(0, room)

    def _issue(self, position: int) -> None:
        draw = self._curriculum.draw(position)
        games: Games = [
            self_play_specs(EpisodeSpec(draw.taskset, draw.task, self._sampling(position, number)))
            for number in range(num_games(draw.taskset, self.config.rollouts_per_example))
        ]
        self._pool.issue(position, games)

    def _open(self, taken: Sequence[PlayedGroup]) -> tuple[list[PlayedGroup], Sequence[Opening]]:
        """Return the groups, and the teacher's opening of each group. Rollouts that the teacher cannot read are marked
        as failed."""
        if not self.distillation:
            return [*taken], [None] * len(taken)
        openings = self.distillation.openings([self._curriculum.draw(group.position) for group in taken])
        check = self.distillation.check_readable
        read = [
            replace(group, rollouts=tuple(check(rollout, opening) for rollout in group.rollouts))
            for group, opening in zip(taken, openings, strict=True)
        ]
        return read, [None if isinstance(opening, RolloutError) else opening for opening in openings]

    def _sampling(self, position: int, number: int) -> SamplingParams:
        """Return the sampling parameters of an episode. The seed depends only on the run's seed, `position` and
        `number`, so a resumed run samples the same tokens."""
        seed = hash_number(f"{self.seed}/{position}/{number}")
        return self.config.sampling.params(self.config.sampling.temperature, seed)

    def _grade(self, taken: Sequence[PlayedGroup], openings: Sequence[Opening]) -> list[Group]:
        """Return a `Group` with advantages for each played group in which at least one rollout succeeded."""
        num_envs = len(self.tasksets)
        groups = []
        for group, opening in zip(taken, openings, strict=True):
            kept = tuple(rollout for rollout in group.rollouts if not rollout.failure)
            if kept:
                env = str(group.position % num_envs)  # the curriculum cycles through the environments
                advantages_GK = tuple(role_advantages(kept, self.loss, self._role_means, env))
                has_signal = every_rollout_has_signal(self.loss) or any(
                    value != 0.0 for values in advantages_GK for value in values
                )
                groups.append(Group(group.position, group.version, kept, advantages_GK, has_signal, opening))
        return groups

    def _samples(self, groups: Sequence[Group], step: int) -> tuple[tuple[Sample, ...], Metrics]:
        """Return the samples of the groups with a gradient, and the metrics of distillation if there is a teacher."""
        # The step's file of rollouts begins with the rollouts of `groups`, in the same order.
        first_rows = accumulate((len(group.rollouts) for group in groups), initial=0)
        placed = [(group, row) for group, row in zip(groups, first_rows, strict=False) if group.has_signal]
        samples = [sample for group, row in placed for sample in _samples(group, self.loss, row)]
        oldest = min((sample.version for sample in samples), default=step)
        assert oldest >= step - self.max_async_level, f"a token of version {oldest} would be trained in step {step}"
        if not self.distillation:
            return tuple(without_teacher(sample, self.loss) for sample in samples), {}
        began = time.perf_counter()
        openings = [group.opening for group, _ in placed for _ in group.rollouts]
        distilled, metrics = self.distillation.apply(samples, openings, self.loss, self.config.sampling.temperature)
        return distilled, metrics | {"time/teacher_s": time.perf_counter() - began}

    def _speed(self, played: Sequence[Rollout], began: float) -> Metrics:
        """Return two metrics: the seconds since `began`, while the trainer waited for the batch, and the sampling
        speed. Above async level 0, the speed is measured since the previous batch."""
        now, sampled = time.perf_counter(), sum(rollout.num_sampled for rollout in played)
        since = (self._collected_s or began) if self.max_async_level else began
        self._collected_s = now
        return {"time/rollout_s": now - began, "perf/tokens_sampled_per_s": sampled / (now - since)}

    def _measure(self, played: Sequence[PlayedGroup]) -> Metrics:
        if not self.monitors.enabled:
            return {}
        tasks: dict[tuple[int, str, str], list[Rollout]] = {}
        for group in played:
            env = group.position % len(self.tasksets)  # two environments may have tasks of the same name
            for rollout in (rollout for rollout in group.rollouts if not rollout.failure):
                tasks.setdefault((env, rollout.task_id, rollout.role), []).append(rollout)
        return measure(list(tasks.values()))

    def _lengths(self) -> Metrics:
        G = self.config.rollouts_per_example
        return {
            "async/in_flight": float(G * len(self._pool.in_flight)),
            "async/waiting": float(G * len(self._pool.waiting)),
        }

    def _reward_by_environment(self, groups: Sequence[Group]) -> Metrics:
        """Return the mean reward of each environment with rollouts in this step; empty for a single environment."""
        if len(self.tasksets) == 1:
            return {}
        rewards: dict[str, list[float]] = {}
        for group in groups:
            rewards.setdefault(self._label(group.position), []).extend(rollout.reward for rollout in group.rollouts)
        return {f"reward/mean/{label}": sum(values) / len(values) for label, values in sorted(rewards.items())}

    def _records(self, groups: Sequence[Group], played: Sequence[PlayedGroup]) -> list[RolloutRecord]:
        graded = [
            (group.position, *pair)
            for group in groups
            for pair in zip(group.rollouts, group.advantages_GK, strict=True)
        ]
        failed = [(group.position, rollout, ()) for group in played for rollout in group.rollouts if rollout.failure]
        text = self.context.chat.full_text
        with_signal = {group.position for group in groups if group.has_signal}
        return [
            RolloutRecord(
                rollout,
                values,
                text(list(rollout.token_ids_T)),
                self._label(position),
                position,
                position in with_signal,
            )
            for position, rollout, values in graded + failed
        ]

    def _label(self, position: int) -> str:
        labels = self.config.labels
        return labels[position % len(labels)]  # the curriculum cycles through the environments


def every_rollout_has_signal(loss: ResolvedLoss) -> bool:
    """Return True if a rollout has a gradient even if all rewards of its group are equal."""
    return loss.has_critic or loss.teacher_tau > 0 or loss.student_tau > 0


def _all_failed(played: Sequence[Rollout]) -> str:
    reasons = Counter(rollout.failure for rollout in played)
    counts = ", ".join(f"{count} x {reason}" for reason, count in reasons.most_common())
    return (
        f"all {len(played)} rollouts of this step failed ({counts}), so there is nothing to train on. The first one: "
        f"{played[0].failure_detail}. Correct the environment and continue with `--resume`."
    )


def _samples(group: Group, loss: ResolvedLoss, first_row: int) -> list[Sample]:
    """Return a group's rollouts as samples. `first_row` is the line number of the first rollout in the step's file."""
    return [
        Sample(
            token_ids_T=rollout.token_ids_T,
            loss_mask_T=rollout.loss_mask_T,
            logprobs_T=rollout.logprobs_T,
            advantages_T=token_advantages(rollout, advantages_K),
            rewards_T=token_rewards(rollout) if loss.has_critic else (),
            version=min(v for v, mask in zip(rollout.versions_T, rollout.loss_mask_T, strict=True) if mask),
            row=row,
        )
        for row, (rollout, advantages_K) in enumerate(
            zip(group.rollouts, group.advantages_GK, strict=True), start=first_row
        )
    ]
