"""Detectors of faults in the policy's texts, and of differences between sampler and trainer."""

from collections.abc import Iterator

from slimrl.config.monitors import MonitorsConfig
from slimrl.monitor.health.history import NUM, WINDOW, Detection, History

KL = "guard/mismatch_kl"
FLOAT32_KL = 1e-6  # rounding errors are smaller than this in float32, and larger in other dtypes
LEAST_KL = {"float32": 1e-5, "coarser": 5e-3}
MOST_KL = 0.02  # limit for equal weights in sampler and trainer, as in the guard
STALE_KL = 0.3  # limit for rollouts of older weights, whose probabilities differ without a fault
MOST_STALE = 0.5  # limit of the fraction of rollouts that are dropped as too old
COLLAPSED = 0.1  # nats; a higher entropy is not a collapse, even after a fast fall
LENGTH, TURNS, TRUNCATED = "rollout/tokens_sampled_mean", "rollout/turns_mean", "rollout/truncated"
REPETITION, SAME_REPLY = "monitor/repetition", "monitor/same_reply"
MOST_RISE = 0.3  # largest rise of a fraction within the window without an alarm
# Metrics with which environments report unreadable replies. True: the metric is the fraction of readable replies.
INVALID = {"env/invalid_share": False, "env/tagged": True, "env/valid": True}


def mismatch(history: History, bounds: MonitorsConfig) -> Iterator[Detection]:
    """Detect that the probabilities of sampler and trainer drift apart, for example because the sampler keeps old
    weights. Also detect that too many rollouts are dropped because of their age.

    With the same weights, sampler and trainer differ only by rounding errors. The divergence of the first step shows
    the size of these errors. If the sampler keeps old weights, the divergence grows at each step. The detector finds
    this growth long before the divergence reaches the guard's bound.
    """
    if history.has(KL, 2):
        rounding = abs(history.values(KL)[0])
        bound = max(bounds.max_mismatch_factor * rounding, LEAST_KL["float32" if rounding < FLOAT32_KL else "coarser"])
        is_older = history.num("async/age_mean") > 0 and history.now("async/age_mean", 2 * NUM) > 0
        bound = max(bound, STALE_KL) if is_older else min(bound, MOST_KL)
        value = abs(history.now(KL))
        message = f"sampler and trainer differ by {value:.2g} nats a token, where at most {bound:.2g} is rounding"
        yield Detection(KL, value, value > bound, message + (" and the age of the rollouts" if is_older else ""))
    if history.row.get("rollout/started") and history.has("drop/stale", NUM):
        share = history.now("drop/stale") / history.now("rollout/started")
        message = f"{share:.0%} of the rollouts became too old and were played again"
        yield Detection("drop/stale", share, share > MOST_STALE, message)


def entropy_collapse(history: History, bounds: MonitorsConfig) -> Iterator[Detection]:
    """Detect a policy that becomes deterministic before the tasks are solved (Cui et al. 2025, 2505.22617).

    A low entropy is healthy if the reward is near the best reward so far. With a teacher, the policy's entropy
    approaches the teacher's entropy, which may be low. So with a teacher only a sudden fall is a fault.
    """
    name = "monitor/surprise" if "monitor/surprise" in history.row else "loss/entropy"
    if history.has(name, NUM + 2):
        value, before = history.now(name), history.before(name)
        has_fallen = value < COLLAPSED and value < bounds.min_entropy_share * before
        has_teacher = "distill/teacher_logprob" in history.row
        is_gone = value < bounds.min_entropy and not has_teacher
        state = f"has fallen from {before:.2g} to" if has_fallen else "is"
        message = f"the policy's entropy {state} {value:.2g} nats a token"
        yield Detection(name, value, (has_fallen or is_gone) and not history.is_solved, message)


def length(history: History, bounds: MonitorsConfig) -> Iterator[Detection]:
    """Detect that replies suddenly become longer, become shorter without a higher reward, or are cut off."""
    if history.has(LENGTH, NUM + 2):
        # Use the length per turn, because longer episodes do not mean longer replies.
        turns = max(1.0, history.now(TURNS)), max(1.0, history.before(TURNS))
        value, before = history.now(LENGTH) / turns[0], history.before(LENGTH) / turns[1]
        factor = value / before if before > 0 else 1.0
        is_long = factor >= bounds.max_length_factor
        is_short = factor <= 1.0 / bounds.max_length_factor and not history.has_risen()
        message = f"replies went from {before:.0f} to {value:.0f} tokens on average"
        yield Detection(LENGTH, value, is_long or is_short, message)
    if history.has(TRUNCATED, NUM + 2):
        value, before = history.now(TRUNCATED), history.before(TRUNCATED)
        message = f"{value:.0%} of the rollouts are cut off by max_tokens or seq_len, from {before:.0%}"
        yield Detection(TRUNCATED, value, value - before >= MOST_RISE, message)


def repetition(history: History, bounds: MonitorsConfig) -> Iterator[Detection]:
    """Detect that replies repeat their own text (Holtzman et al. 2020, 1904.09751), and that the repetition rises or
    stays high."""
    if history.has(REPETITION, NUM):
        value, first = history.now(REPETITION), history.first(REPETITION)
        lasts = history.num(REPETITION) > WINDOW // 2 and value >= history.before(REPETITION) - 0.05
        is_bad = value > bounds.max_repetition and (value >= first + 0.1 or lasts)
        message = f"{value:.0%} of the replies' passages of 4 tokens stand earlier in the same reply"
        yield Detection(REPETITION, value, is_bad, message)


def one_reply(history: History, bounds: MonitorsConfig) -> Iterator[Detection]:
    """Detect that most tasks get the same reply. A policy may learn to reply always with the most frequent right
    answer."""
    if history.has(SAME_REPLY, NUM):
        value = history.now(SAME_REPLY)
        is_bad = value > bounds.max_same_reply and not history.is_solved
        yield Detection(
            SAME_REPLY, value, is_bad, f"{value:.0%} of the replies to different tasks end in the same line"
        )


def invalid_calls(history: History, bounds: MonitorsConfig) -> Iterator[Detection]:
    """Detect that the environment cannot read the policy's tool calls, or replies that lack the required tags.

    The finding is not bad while the fraction of unreadable replies falls, because the policy is still learning the
    format.
    """
    for name, is_good in INVALID.items():
        if history.has(name, NUM + 2):
            value, before = history.now(name), history.before(name)
            value, before = (1.0 - value, 1.0 - before) if is_good else (value, before)
            lasts = history.num(name) > WINDOW // 2 and value > bounds.max_invalid_share and value >= before - 0.05
            message = f"{value:.0%} of the policy's calls or replies cannot be read, from {before:.0%}"
            yield Detection(name, history.now(name), lasts or value - before >= MOST_RISE, message)
