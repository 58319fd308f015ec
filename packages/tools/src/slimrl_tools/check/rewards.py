"""Compares rewards: the expert must earn the most; silence, nonsense and a copied prompt must earn almost nothing."""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from slimrl.environments.base import CONSTANT
from slimrl.environments.scripts import EXPERT
from slimrl.stats import Estimate, paired_difference
from slimrl_tools.check.subjects import note, ok, problem
from slimrl_tools.check.trial import Played
from slimrl_tools.findings import Finding, Level

RANDOM = "random"
NOISE = 1e-9  # tolerance for sums of rewards
COPY_SHARE = 0.5  # share of the expert's reward that a copied prompt must not reach
CONSTANT_SHARE = 0.3  # a constant answer above this share of the expert's reward is worth a note
ByTask = Mapping[str, float]


def reward_findings(played: Sequence[Played], has_expert: bool) -> Iterator[Finding]:
    """Yield the findings on the rewards of scripts and useless replies. `has_expert` is True if the environment has a
    script `expert`, even if its episodes failed."""
    scripts = _by_player([one for one in played if one.kind == "script" and one.is_finished])
    constant = scripts.get(CONSTANT, {})
    if expert := scripts.get(EXPERT, {}):
        yield (found := _expert_finding(expert, scripts))
        if found.level is not Level.PROBLEM:  # rewards of the expert are needed for a comparison
            yield _random_finding(expert, scripts.get(RANDOM))
            if constant:
                yield _constant_finding(expert, constant)
    elif not has_expert:
        remedy = 'Add `scripts = {"expert": ...}`: it shows that tasks can be done, and a warm-up learns from it.'
        yield note("expert", "there is none, so it is not known that a right answer pays", remedy)
    whole = [one for one in played if not one.rollout.failure]
    if silent := [one for one in whole if one.kind == "nothing"]:
        leads = [(one.rollout.reward - constant.get(one.task.id, 0.0), one.rollout.reward) for one in silent]
        best = silent[leads.index(max(leads))]
        reward, subject = best.rollout.reward, "doing nothing"
        text = f"{best.what} earns {reward:.3g} on task `{best.task.id:.60}`"
        if reward <= NOISE:
            yield ok(subject, f"earns {reward:.3g} at most")
        else:
            yield _blind_finding(subject, text, reward, constant.get(best.task.id, 0.0))
    for kind, subject, share in (("garbage", "pay of garbage", 1.0), ("copy", "copying", COPY_SHARE)):
        if useless := [one for one in whole if one.kind == kind]:
            yield _useless_finding(subject, _by_player(useless), expert, constant, share)


def _by_player(played: Sequence[Played]) -> dict[str, dict[str, float]]:
    """Return the rewards by player (a script or a reply) and by task id."""
    found: dict[str, dict[str, float]] = {}
    for one in played:
        found.setdefault(one.what, {})[one.task.id] = one.rollout.reward
    return found


def _expert_finding(expert: ByTask, scripts: Mapping[str, ByTask]) -> Finding:
    """Return a finding on whether the expert earns a reward. If another script earns more, the finding is only a note:
    this script may know more than the policy, or the expert may show mistakes on purpose."""
    rewards = expert.values()
    text = f"earns {fmean(rewards):.3g} on average of {len(rewards)} tasks ({min(rewards):.3g} to {max(rewards):.3g})"
    if max(rewards) <= NOISE:
        return problem("expert", f"{text}: nothing", "Whoever does all right must be rewarded: mend either of them.")
    leads = {name: _difference(others, expert) for name, others in scripts.items() if name != EXPERT}
    better = {name: lead.mean for name, lead in leads.items() if lead and _is_above_zero(lead)}
    if not better:
        return ok("expert", text)
    name = max(better, key=lambda one: better[one])
    remedy = "A warm-up learns from the expert: let it play as well as it can, unless it is to show mistakes too."
    return note("expert", f"{text}, and the script `{name}` {better[name]:.3g} more", remedy)


def _random_finding(expert: ByTask, random: ByTask | None) -> Finding:
    """Return a finding on whether the expert earns more than random play."""
    subject = "random play"
    if random is None:
        remedy = 'Add a script "random", which knows the form and nothing else: what is learnt begins above it.'
        return note(subject, "there is no script `random` to compare with", remedy)
    gain, text = _difference(expert, random), f"earns {fmean(random.values()):.3g}"
    if gain and _is_above_zero(gain):
        return ok(subject, f"{text} on average, {gain.mean:.3g} less than the expert")
    if gain and gain.high > NOISE:
        found = f"{text}, the expert {gain.mean:+.3g} ({gain.interval}) on {gain.num} tasks, which may be chance"
        return note(subject, found, "Raise --num_examples to see whether the expert is better.")
    return problem(subject, f"{text} on average, no less than the expert")


def _constant_finding(expert: ByTask, constant: ByTask) -> Finding:
    """Return a finding on whether a constant answer to all tasks earns much."""
    earned, possible = fmean(constant.values()), _mean_over(expert, constant)
    text = f"the best one earns {earned:.3g} on average, the expert {possible:.3g}"
    if earned > CONSTANT_SHARE * possible:
        remedy = "A policy may learn to say it to all tasks. Take more tasks with other answers, or pay rare ones more."
        return note("constant answer", text, remedy)
    return ok("constant answer", text)


def _useless_finding(
    subject: str, by_reply: Mapping[str, ByTask], expert: ByTask, constant: ByTask, share: float
) -> Finding:
    """Return a finding on the useless reply with the highest mean reward: a problem if it earns at least `share` of the
    expert's reward on the same tasks, and more than the constant answer."""
    name, rewards = max(by_reply.items(), key=lambda item: fmean(item[1].values()))
    best = fmean(rewards.values())
    text = f"`{name}` earns {best:.3g} on average, the most of {len(by_reply)}"
    if not expert:
        found = f"{text}; without an expert there is nothing to compare it with"
        return note(subject, found) if best > NOISE else ok(subject, found)
    possible = _mean_over(expert, rewards)
    text = f"{text}; the expert {possible:.3g}"
    if best <= NOISE or best < share * possible - NOISE:
        return ok(subject, text)
    return _blind_finding(subject, text, best, fmean(constant.get(task, 0.0) for task in rewards))


def _blind_finding(subject: str, text: str, reward: float, constant: float) -> Finding:
    """Return a finding on the reward of a useless reply. It is only a note if the script `constant` earns as much on
    the same tasks, because every evaluation shows the reward of this script."""
    if reward > constant + NOISE:
        return problem(subject, text)
    return note(subject, f"{text}, as the script `{CONSTANT}` does: learn more than that")


def _is_above_zero(difference: Estimate) -> bool:
    """Return True if a difference is above 0. If the difference has an interval, the whole interval must be above 0."""
    return difference.mean > NOISE if math.isnan(difference.low) else difference.low > NOISE


def _mean_over(expert: ByTask, tasks: ByTask) -> float:
    """Return the expert's mean reward over those of the `tasks` that the expert finished. If there are none, use all
    tasks that the expert finished."""
    return fmean([expert[task] for task in tasks if task in expert] or expert.values())


def _difference(rewards: ByTask, others: ByTask) -> Estimate | None:
    """Return the mean of `rewards` minus `others` over their common tasks; None if they have no common task."""
    both = [task for task in rewards if task in others]
    return paired_difference([rewards[task] for task in both], [others[task] for task in both]) if both else None
