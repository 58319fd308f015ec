"""What comes out of a simulated run: speed, age of what is trained, who waits, and what a step costs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slimrl_tools.plan.pipeline.orchestrator import SimulatedOrchestrator
from slimrl_tools.plan.pipeline.placement import Placement
from slimrl_tools.plan.pipeline.replica import Replica


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A step: when it began and ended, the seconds of training, how long the replicas had computed by its end, the
    tokens that were trained, and the ages of its groups."""

    step: int
    began_s: float
    ended_s: float
    trained_s: float
    sampler_busy_s: float
    tokens: float
    ages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A simulated run. Idle shares are of the devices' time; `dropped` is the share of rollouts that got too old, and
    `useless` of those of which nothing was learned. `batch` are the sequences of a decoding step, on average."""

    placement: Placement
    step_s: float
    train_s: float
    tokens_per_s: float
    age_mean: float
    age_p95: float
    age_max: int
    dropped: float
    useless: float
    sampler_idle: float
    trainer_idle: float
    batch: float
    account: dict[str, int]

    @property
    def steps_per_hour(self) -> float:
        """The training steps of an hour."""
        return 3600 / self.step_s

    @property
    def sampler_busy_s(self) -> float:
        """The seconds of a step in which a replica computes."""
        return (1 - self.sampler_idle) * self.step_s

    @property
    def device_hours(self) -> float:
        """The hours of devices that a step takes."""
        return self.placement.num_devices * self.step_s / 3600

    @property
    def who_waits(self) -> str:
        """What has less to do: the trainer, the samplers, or neither by much."""
        if self.placement.kind == "one-process":
            return "in turn"
        if abs(self.sampler_idle - self.trainer_idle) < 0.1:
            return "both alike"
        return "trainer" if self.trainer_idle > self.sampler_idle else "samplers"


def outcome_of(
    records: Sequence[StepRecord],
    placement: Placement,
    replicas: Sequence[Replica],
    orchestrator: SimulatedOrchestrator,
) -> Outcome:
    """The outcome of the steps after the first of the records, which stands for those before."""
    first, last = records[0], records[-1]
    seconds, steps = last.ended_s - first.ended_s, records[1:]
    ages = sorted(age for record in steps for age in record.ages) or [0]
    account = orchestrator.account
    counts = {
        "started": account.started,
        "trained": account.trained,
        "dropped_stale": account.dropped_stale,
        "dropped_useless": account.dropped_useless,
        "waiting": orchestrator.num_waiting,
        "in_flight": orchestrator.num_in_flight,
    }
    sampled_s = (last.sampler_busy_s - first.sampler_busy_s) / len(replicas)
    trained_s = sum(record.trained_s for record in steps)
    return Outcome(
        placement,
        step_s=seconds / len(steps),
        train_s=trained_s / len(steps),
        tokens_per_s=sum(record.tokens for record in steps) / seconds,
        age_mean=sum(ages) / len(ages),
        age_p95=ages[math.ceil(0.95 * len(ages)) - 1],
        age_max=ages[-1],
        dropped=account.dropped_stale / account.started,
        useless=account.dropped_useless / account.started,
        sampler_idle=1 - sampled_s / seconds,
        trainer_idle=1 - trained_s / seconds,
        batch=sum(one.totals.sequences for one in replicas) / max(1e-9, sum(one.totals.steps for one in replicas)),
        account=counts,
    )
