"""Compares rewards: the expert must earn the most; silence, nonsense and a copied prompt must earn almost nothing."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from slimrl.environments.base import CONSTANT
from slimrl.environments.scripts import EXPERT
from slimrl.monitor.findings import Finding
from slimrl.stats import Estimate, paired_difference
from slimrl.types import StopReason
from slimrl_tools.check import subjects
from slimrl_tools.check.subjects import Subject
from slimrl_tools.check.trial import Played

RANDOM = "random"
NOISE = 1e-9  # tolerance for sums of rewards
COPY_SHARE = 0.5  # share of the expert's reward that a copied prompt must not reach
CONSTANT_SHARE = 0.3  # a constant answer above this share of the expert's reward is worth a note
NO_EXPERT = subjects.EXPERT.note(
    "there is none, so it is not known that a right answer pays",
    'Add `scripts = {"expert": ...}`: it shows that tasks can be done, and a warm-up learns from it.',
)
ByTask = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Earned:
    """Rewards of the scripts, by script and task, in episodes that finished by themselves."""

    scripts: Mapping[str, ByTask]

    @property
    def expert(self) -> ByTask:
        return self.scripts.get(EXPERT, {})

    def expert_mean(self, tasks: Sequence[str]) -> float:
        """Return the expert's mean over the given tasks that it finished; if there are none, over all of its tasks."""
        return fmean([self.expert[task] for task in tasks if task in self.expert] or self.expert.values())


def earnings_of(played: Sequence[Played]) -> Earned:
    """Return the rewards of the scripted episodes that finished by themselves."""
    rewards: dict[str, dict[str, float]] = {}
    for one in played:
        if one.is_script and not one.rollout.failure and one.rollout.stop_reason is StopReason.DONE:
            rewards.setdefault(one.what, {})[one.rollout.task_id] = one.rollout.reward
    return Earned(rewards)


def expert_finding(earned: Earned) -> Finding:
    """Return a finding on whether the expert earns a reward. A script that earns more is only worth a note: it may know
    more than the policy, or the expert may err on purpose to show a recovery."""
    rewards = earned.expert.values()
    text = f"earns {fmean(rewards):.3g} on average of {len(rewards)} tasks ({min(rewards):.3g} to {max(rewards):.3g})"
    if max(rewards) <= NOISE:
        remedy = "Whoever does all right must be rewarded: mend either of them."
        return subjects.EXPERT.problem(f"{text}: nothing", remedy)
    better = {
        name: ahead.mean
        for name, others in earned.scripts.items()
        if name != EXPERT and (ahead := _difference(others, earned.expert)) and _is_above_zero(ahead)
    }
    if better:
        name = max(better, key=lambda one: better[one])
        remedy = "A warm-up learns from the expert: let it play as well as it can, unless it is to show mistakes too."
        return subjects.EXPERT.note(f"{text}, and the script `{name}` {better[name]:.3g} more", remedy)
    return subjects.EXPERT.ok(text)


def random_finding(earned: Earned) -> Finding:
    """Return a finding on whether the expert earns more than random play."""
    if RANDOM not in earned.scripts:
        remedy = 'Add a script "random", which knows the form and nothing else: what is learnt begins above it.'
        return subjects.RANDOM_PLAY.note("there is no script `random` to compare with", remedy)
    gain, text = _difference(earned.expert, earned.scripts[RANDOM]), f"earns {_mean(earned.scripts[RANDOM]):.3g}"
    if gain and _is_above_zero(gain):
        return subjects.RANDOM_PLAY.ok(f"{text} on average, {gain.mean:.3g} less than the expert")
    if gain and gain.high > NOISE:
        found = f"{text}, the expert {gain.mean:+.3g} ({gain.interval}) on {gain.num} tasks, which may be chance"
        return subjects.RANDOM_PLAY.note(found, "Raise --num_examples to see whether the expert is better.")
    return subjects.RANDOM_PLAY.problem(f"{text} on average, no less than the expert")


def constant_finding(earned: Earned) -> Finding:
    """Return a finding on whether one answer to every task earns much."""
    constant, expert = _mean(earned.scripts[CONSTANT]), earned.expert_mean(list(earned.scripts[CONSTANT]))
    text = f"the best one earns {constant:.3g} on average, the expert {expert:.3g}"
    if constant > CONSTANT_SHARE * expert:
        remedy = "A policy may learn to say it to all tasks. Take more tasks with other answers, or pay rare ones more."
        return subjects.CONSTANT_ANSWER.note(text, remedy)
    return subjects.CONSTANT_ANSWER.ok(text)


def silence_finding(played: Sequence[Played]) -> Finding:
    """Return a finding on whether replies without a word earn nothing."""
    best = max(played, key=lambda one: one.rollout.reward)
    if best.rollout.reward > NOISE:
        text = f"{best.what} earns {best.rollout.reward:.3g} on task `{best.rollout.task_id:.60}`"
        return subjects.SILENCE.problem(text)
    return subjects.SILENCE.ok(f"earns {best.rollout.reward:.3g} at most")


def useless_finding(subject: Subject, played: Sequence[Played], earned: Earned, share: float) -> Finding:
    """Return a finding on the useless reply with the highest mean reward: a problem if it earns at least `share` of the
    expert's reward on the same tasks."""
    by_name: dict[str, dict[str, float]] = {}
    for one in played:
        by_name.setdefault(one.what, {})[one.rollout.task_id] = one.rollout.reward
    name, rewards = max(by_name.items(), key=lambda item: _mean(item[1]))
    best = _mean(rewards)
    text = f"`{name}` earns {best:.3g} on average, the most of {len(by_name)}"
    if not earned.expert:
        found = f"{text}; without an expert there is nothing to compare it with"
        return subject.note(found) if best > NOISE else subject.ok(found)
    expert = earned.expert_mean(list(rewards))
    text = f"{text}; the expert {expert:.3g}"
    return subject.problem(text) if best > NOISE and best >= share * expert - NOISE else subject.ok(text)


def _is_above_zero(difference: Estimate) -> bool:
    """Return True if a difference is above 0, and not by chance: where it has an interval, that must be above 0."""
    return difference.mean > NOISE if math.isnan(difference.low) else difference.low > NOISE


def _mean(rewards: ByTask) -> float:
    return fmean(rewards.values())


def _difference(rewards: ByTask, others: ByTask) -> Estimate | None:
    """Return the mean difference over the tasks that both finished; None if there are none."""
    both = [task for task in rewards if task in others]
    return paired_difference([rewards[task] for task in both], [others[task] for task in both]) if both else None
