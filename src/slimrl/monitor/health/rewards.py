"""Detectors of rewards that teach nothing: equal rewards, groups without a signal, a judge that always answers yes, and
memorised tasks."""

import math
from collections.abc import Iterator

from slimrl.config.monitors import MonitorsConfig
from slimrl.monitor.health.history import NUM, Detection, History
from slimrl.monitor.metrics import select_held_out_rewards

ZERO, SPREAD, STD = "reward/zero_signal_groups", "monitor/spread_within", "reward/std"
YES, DISAGREES = "env/judge_yes", "env/judge_disagrees"
EQUAL = 1e-9  # the standard deviation of equal rewards, up to rounding
ALWAYS = 0.95  # a verdict that a judge gives at least this often counts as constant


def reward_spread(history: History, bounds: MonitorsConfig) -> Iterator[Detection]:
    """Detect a reward that is the same for every reply.

    Either all rewards are equal, or they differ only between tasks, and the policy cannot change the task. The detector
    raises no alarm if the tasks are solved, or if the policy learns from a teacher instead of from rewards.
    """
    name = SPREAD if SPREAD in history.row else STD
    has_teacher = any(metric.startswith("distill/") for metric in history.row)
    if STD in history.row and history.has(name, NUM) and not has_teacher:
        value, is_constant = history.now(name), history.now(STD) <= EQUAL
        is_bad = (is_constant or (name == SPREAD and value < bounds.min_spread_within)) and not history.is_solved
        message = (
            f"{value:.1%} of the rewards' variance lies within groups: the reward depends on the task, not the reply"
        )
        if is_constant:
            message = f"all rewards are {history.row.get('reward/mean', 0.0):.3g}"
        yield Detection(name, value, is_bad, message)


def zero_signal(history: History, bounds: MonitorsConfig) -> Iterator[Detection]:
    """Detect that nearly no group has a learning signal (DAPO, 2503.14476), though the tasks are not solved."""
    if history.has(ZERO, NUM):
        value = history.now(ZERO, NUM + 2)
        is_bad = value >= bounds.max_zero_signal and not history.is_solved
        message = f"{value:.0%} of the groups carry no signal: all attempts at a task earn the same"
        yield Detection(ZERO, value, is_bad, message)


def judge(history: History, bounds: MonitorsConfig) -> Iterator[Detection]:
    """Detect a judge that often disagrees with the comparison of words. The bound is lower if the judge nearly always
    gives the same verdict.

    If in doubt, the comparison of words answers no. A judge that answers yes in such a case is sometimes right. A judge
    that nearly always answers yes ignores the answer or is fooled by the policy (Zhao et al. 2025, 2507.08794).
    """
    if history.has(YES, 2) and DISAGREES in history.row:
        yes, value = history.now(YES), history.now(DISAGREES)
        verdict = "yes" if yes >= ALWAYS else "no" if yes <= 1.0 - ALWAYS else ""
        bound = bounds.max_judge_disagreement * (0.75 if verdict else 1.0)
        says = f"{verdict} to {max(yes, 1.0 - yes):.0%} of the answers," if verdict else f"yes to {yes:.0%}"
        message = f"the judge says {says} and differs from the comparison of words in {value:.0%}"
        yield Detection(DISAGREES, value, value >= bound, message)


def gap_to_held_out(history: History, bounds: MonitorsConfig) -> Iterator[Detection]:
    """Detect that the training reward rises much more than the held-out reward, for example because tasks are
    memorised. The held-out gain must be too small even after the noise of both evaluations is added."""
    names = [name for name in select_held_out_rewards(history.row) if history.num(name) > 1]
    # Prefer the decoding mode that training uses.
    names.sort(key=lambda name: name != "held_out/reward_sampled")
    if names and history.num("reward/mean") >= NUM + 2 and history.reward_range > 0.0:
        name = names[0]
        gain = history.now("reward/mean", NUM + 2) - history.first("reward/mean")
        then, now = history.values(name)[0], history.values(name)[-1]
        noise = math.hypot(_half(history, name, 0), _half(history, name, -1))
        is_bad = gain >= 0.1 * history.reward_range and now - then + noise < bounds.min_held_out_share * gain
        message = f"the training reward rose by {gain:.3f}, that of held-out tasks by {now - then:.3f}"
        yield Detection(name, now, is_bad, message)


def _half(history: History, name: str, index: int) -> float:
    """Return half the width of the interval of a held-out mean. `index` selects the evaluation."""
    low, high = history.values(f"{name}_low"), history.values(f"{name}_high")
    return (high[index] - low[index]) / 2 if low and high else 0.0
