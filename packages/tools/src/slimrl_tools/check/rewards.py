"""Compares what is earned: the expert must earn the most, and nothing, nonsense and a copied prompt next to nothing."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from slimrl.environments.base import CONSTANT
from slimrl.environments.scripts import EXPERT
from slimrl.monitor.findings import Finding, Level
from slimrl.stats import Estimate, paired_difference
from slimrl.types import StopReason
from slimrl_tools.check.trial import Played

RANDOM = "random"
NOISE = 1e-9  # of sums of rewards
COPY_SHARE = 0.5  # of what the expert earns, which a copied prompt must not reach
CONSTANT_SHARE = 0.3  # above which a constant answer is worth a note
NO_EXPERT = Finding(
    "expert",
    Level.NOTE,
    "there is none, so it is not known that a right answer pays",
    'Add `scripts = {"expert": ...}`: it shows that tasks can be done, and a warm-up learns from it.',
)
ByTask = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Earned:
    """What the scripts earned, by script and task, in episodes that ended by themselves."""

    scripts: Mapping[str, ByTask]

    @property
    def expert(self) -> ByTask:
        return self.scripts.get(EXPERT, {})

    def expert_mean(self, tasks: Sequence[str]) -> float:
        """The expert's mean on those of the tasks that it ended."""
        return fmean([self.expert[task] for task in tasks if task in self.expert] or self.expert.values())


def earnings_of(played: Sequence[Played]) -> Earned:
    """The rewards of the scripts' episodes that ended by themselves."""
    rewards: dict[str, dict[str, float]] = {}
    for one in played:
        if one.is_script and not one.rollout.failure and one.rollout.stop_reason is StopReason.DONE:
            rewards.setdefault(one.what, {})[one.rollout.task_id] = one.rollout.reward
    return Earned(rewards)


def expert_finding(earned: Earned) -> Finding:
    """Whether the expert earns something. That another script earns more is worth a note: it may know more than the
    policy, or the expert may err on purpose, to show what to do then."""
    mean = fmean(earned.expert.values())
    low, high = min(earned.expert.values()), max(earned.expert.values())
    text = f"earns {mean:.3g} on average of {len(earned.expert)} tasks ({low:.3g} to {high:.3g})"
    if high <= NOISE:
        return Finding(
            "expert", Level.PROBLEM, f"{text}: nothing", "Whoever does all right must be rewarded: mend either of them."
        )
    better = {
        name: ahead.mean
        for name, rewards in earned.scripts.items()
        if name != EXPERT and (ahead := _difference(rewards, earned.expert)) and _is_above_zero(ahead)
    }
    if better:
        name = max(better, key=lambda one: better[one])
        remedy = "A warm-up learns from the expert: let it play as well as it can, unless it is to show mistakes too."
        return Finding("expert", Level.NOTE, f"{text}, and the script `{name}` {better[name]:.3g} more", remedy)
    return Finding("expert", Level.OK, text)


def random_finding(earned: Earned) -> Finding:
    """Whether the expert earns more than random play."""
    if RANDOM not in earned.scripts:
        remedy = 'Add a script "random", which knows the form and nothing else: what is learnt begins above it.'
        return Finding("random play", Level.NOTE, "there is no script `random` to compare with", remedy)
    gain, text = _difference(earned.expert, earned.scripts[RANDOM]), f"earns {_mean(earned.scripts[RANDOM]):.3g}"
    if gain and _is_above_zero(gain):
        return Finding("random play", Level.OK, f"{text} on average, {gain.mean:.3g} less than the expert")
    if gain and gain.high > NOISE:
        found = f"{text}, the expert {gain.mean:+.3g} ({gain.interval}) on {gain.num} tasks, which may be chance"
        return Finding("random play", Level.NOTE, found, "Raise --num_examples to see whether the expert is better.")
    found = f"{text} on average, no less than the expert"
    return Finding("random play", Level.PROBLEM, found, "The reward does not tell right from wrong: mend it.")


def constant_finding(earned: Earned) -> Finding:
    """Whether one answer to every task earns much."""
    constant, expert = _mean(earned.scripts[CONSTANT]), earned.expert_mean(list(earned.scripts[CONSTANT]))
    text = f"the best one earns {constant:.3g} on average, the expert {expert:.3g}"
    if constant > CONSTANT_SHARE * expert:
        remedy = "A policy may learn to say it to all tasks. Take more tasks with other answers, or pay rare ones more."
        return Finding("constant answer", Level.NOTE, text, remedy)
    return Finding("constant answer", Level.OK, text)


def silence_finding(played: Sequence[Played]) -> Finding:
    """Whether replies without a word earn nothing."""
    best = max(played, key=lambda one: one.rollout.reward)
    reward = best.rollout.reward
    if reward > NOISE:
        found = f"{best.what} earns {reward:.3g} on task `{best.rollout.task_id:.60}`"
        remedy = "Give nothing without an answer: a policy learns to be silent where that pays."
        return Finding("doing nothing", Level.PROBLEM, found, remedy)
    return Finding("doing nothing", Level.OK, f"earns {reward:.3g} at most")


def garbage_finding(played: Sequence[Played], earned: Earned) -> Finding:
    """Whether some useless reply earns as much as the expert, over the tasks that it was tried on."""
    means = _means(played)
    name, mean = max(means.items(), key=lambda item: item[1][0])
    if not earned.expert:
        text = f"earns {mean[0]:.3g} at most ({name}); without an expert there is nothing to compare it with"
        return Finding("pay of garbage", Level.NOTE if mean[0] > NOISE else Level.OK, text)
    expert = earned.expert_mean(mean[1])
    text = f"`{name}` earns {mean[0]:.3g} on average, the most of {len(means)}; the expert {expert:.3g}"
    if mean[0] >= expert - NOISE and mean[0] > NOISE:
        remedy = (
            "Bound the reward, and read a reply in one way: the first answer counts, and what is no answer earns 0."
        )
        return Finding("pay of garbage", Level.PROBLEM, text, remedy)
    return Finding("pay of garbage", Level.OK, text)


def copy_finding(played: Sequence[Played], earned: Earned) -> Finding:
    """Whether a reply that copies what was read earns much."""
    name, mean = max(_means(played).items(), key=lambda item: item[1][0])
    if not earned.expert:
        return Finding("copying", Level.NOTE if mean[0] > NOISE else Level.OK, f"{name} earns {mean[0]:.3g}")
    expert = earned.expert_mean(mean[1])
    text = f"{name} earns {mean[0]:.3g} on average, the expert {expert:.3g}"
    if mean[0] > NOISE and mean[0] >= COPY_SHARE * expert:
        remedy = "Take the answer out of the prompt, and compare whole answers rather than look for one in the reply."
        return Finding("copying", Level.PROBLEM, text, remedy)
    return Finding("copying", Level.OK, text)


def _is_above_zero(difference: Estimate) -> bool:
    """Whether a mean difference is above 0, and not by chance; where all are equal there is no interval."""
    return difference.mean > NOISE if math.isnan(difference.low) else difference.low > NOISE


def _mean(rewards: ByTask) -> float:
    return fmean(rewards.values())


def _means(played: Sequence[Played]) -> dict[str, tuple[float, list[str]]]:
    """The mean reward of each reply over the tasks on which it was tried, and these tasks."""
    by_name: dict[str, dict[str, float]] = {}
    for one in played:
        by_name.setdefault(one.what, {})[one.rollout.task_id] = one.rollout.reward
    return {name: (fmean(rewards.values()), list(rewards)) for name, rewards in by_name.items()}


def _difference(rewards: ByTask, others: ByTask) -> Estimate | None:
    """The mean difference on the tasks that both ended; None where there are none."""
    both = [task for task in rewards if task in others]
    return paired_difference([rewards[task] for task in both], [others[task] for task in both]) if both else None
