"""Detectors of faulty rewards: groups without a gradient, a faulty judge, memorised tasks, and reward hacking.

Metrics cannot show directly that a reward is wrong. So reward hacking is detected by three signs: replies that no
longer depend on the task, wrong answers with the same reward as right answers, and fewer right answers while the reward
rises. The last two signs need an environment that reports right answers.
"""

import math
from collections.abc import Iterator

from slimrl.config.monitors import MonitorsConfig
from slimrl.monitor.health.history import NUM, Detection, History
from slimrl.monitor.metrics import select_held_out_rewards

ZERO = "reward/zero_signal_groups"
YES, DISAGREES = "env/judge_yes", "env/judge_disagrees"
ALWAYS = 0.95  # a verdict that a judge gives at least this often counts as constant
DEPENDENCE, SHARED, RIGHT = "monitor/task_dependence", "monitor/shared_across_tasks", "monitor/right"
WRONG_REWARD, RIGHT_REWARD = "monitor/wrong_reward", "monitor/right_reward"
LEAST_DEPENDENCE = 0.05  # minimum task dependence in the first steps; below it, a loss of dependence cannot be detected
MORE_SHARED = 0.5  # rise of `monitor/shared_across_tasks` that means one text for all tasks
LEAST_RIGHT = 0.1  # earlier share of right answers; an alarm needs a fall to half of that share


def zero_signal(history: History, bounds: MonitorsConfig) -> Iterator[Detection]:
    """Detect that nearly all groups have equal rewards and so no gradient (DAPO, 2503.14476), and that the tasks are
    not solved."""
    if history.has(ZERO, NUM):
        value = history.now(ZERO, NUM + 2)
        is_bad = value >= bounds.max_zero_signal and not history.is_solved
        message = f"{value:.0%} of the groups carry no signal: all attempts at a task earn the same"
        yield Detection(ZERO, value, is_bad, message)


def judge(history: History, bounds: MonitorsConfig) -> Iterator[Detection]:
    """Detect a judge that often disagrees with a comparison of the answer's words with the right answer's. The limit is
    lower if the judge nearly always gives the same verdict.

    In doubtful cases the comparison's verdict is no, so some disagreement is normal. But a judge whose verdict is
    nearly always yes ignores the answer or is fooled by the policy (Zhao et al. 2025, 2507.08794).
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
    memorised. The noise of the first and the latest evaluation is added to the held-out gain, so only a significant gap
    counts."""
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
    low, high = history.values(f"{name}_low"), history.values(f"{name}_high")
    return (high[index] - low[index]) / 2 if low and high else 0.0


def reward_hacking(history: History, bounds: MonitorsConfig) -> Iterator[Detection]:
    """Detect a reward that rises while the answers become worse (Skalski et al. 2022, 2209.13085)."""
    if history.has(DEPENDENCE, NUM + 2):
        yield _independence(history, bounds)
    if history.has(WRONG_REWARD, NUM + 2):
        yield _pay_for_wrong(history, bounds)
    if history.has(RIGHT, NUM + 5):
        value, before = history.now(RIGHT, NUM + 2), history.before(RIGHT, NUM + 2)
        is_bad = before >= LEAST_RIGHT and value <= before / 2 and history.has_risen()
        message = f"the reward rises while right answers fall from {before:.0%} to {value:.0%}"
        yield Detection(RIGHT, value, is_bad, message)


def _independence(history: History, bounds: MonitorsConfig) -> Detection:
    """Detect that the reward rises although replies no longer depend on the task: one text for all tasks, or noise."""
    value, first = history.now(DEPENDENCE), history.first(DEPENDENCE)
    shared, shared_first = history.now(SHARED), history.first(SHARED)
    is_lost = first >= LEAST_DEPENDENCE and value <= bounds.min_dependence_share * first
    # A policy that starts with noise has no task dependence. It can only collapse to one text.
    is_uniform = max(first, value) < LEAST_DEPENDENCE and shared - shared_first >= MORE_SHARED
    return Detection(
        DEPENDENCE,
        value,
        (is_lost or is_uniform) and history.has_risen(since_start=True),
        f"the reward rises while replies depend little on the task ({first:.2f} to {value:.2f}; what they have in "
        f"common across tasks went from {shared_first:.0%} to {shared:.0%})",
    )


def _pay_for_wrong(history: History, bounds: MonitorsConfig) -> Detection:
    """Detect that most answers are wrong and have about the same reward as right answers."""
    right_reward = history.now(RIGHT_REWARD) if history.num(RIGHT_REWARD) else history.highest
    wrong_reward, right = history.now(WRONG_REWARD), history.now(RIGHT)
    scale = right_reward - history.lowest
    share = (wrong_reward - history.lowest) / scale if scale > 0 else math.nan
    return Detection(
        WRONG_REWARD,
        wrong_reward,
        right <= 0.5 and share >= bounds.max_wrong_reward and history.reward_range > 0,
        f"{1 - right:.0%} of the answers are wrong by the environment's own measure and earn {wrong_reward:.3g} on "
        f"average, where right ones earn {right_reward:.3g}",
    )
