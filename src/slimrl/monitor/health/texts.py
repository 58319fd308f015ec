"""Detectors of faults in the policy's texts: lengths, repetition, unreadable replies."""

import math
from collections.abc import Iterator

from slimrl.config.monitors import MonitorsConfig
from slimrl.monitor.health.history import NUM, WINDOW, Detection, History

LENGTH, TURNS, TRUNCATED = "rollout/tokens_sampled_mean", "rollout/turns_mean", "rollout/truncated"
REPETITION, SAME_REPLY = "monitor/repetition", "monitor/same_reply"
PAID = 0.4  # minimum correlation within groups at which length counts as rewarded
MOST_RISE = 0.3  # largest rise of a share within the window without an alarm
# Metrics by which environments report unreadable replies; True if the metric counts the readable share instead.
INVALID = {"env/invalid_share": False, "env/tagged": True, "env/valid": True}


def length(history: History, bounds: MonitorsConfig) -> Iterator[Detection]:
    """Detect that replies suddenly become longer, become shorter without a higher reward, or are cut off.

    The bound for growth is lower if longer replies earn more within groups: the reward may pay for length itself
    (Singhal et al. 2023, 2310.03716).
    """
    if history.has(LENGTH, NUM + 2):
        # Per turn, because longer episodes do not mean longer replies.
        turns = max(1.0, history.now(TURNS)), max(1.0, history.before(TURNS))
        value, before = history.now(LENGTH) / turns[0], history.before(LENGTH) / turns[1]
        factor = value / before if before > 0 else 1.0
        correlation = history.now("monitor/length_reward", NUM + 2)
        is_paid = correlation >= PAID
        is_long = factor >= (math.sqrt(bounds.max_length_factor) if is_paid else bounds.max_length_factor)
        is_short = factor <= 1.0 / bounds.max_length_factor and not history.has_risen()
        message = f"replies went from {before:.0f} to {value:.0f} tokens on average"
        if is_long and is_paid:
            message += f", and within groups longer ones earn more (correlation {correlation:.2f})"
        yield Detection(LENGTH, value, is_long or is_short, message)
    if history.has(TRUNCATED, NUM + 2):
        value, before = history.now(TRUNCATED), history.before(TRUNCATED)
        message = f"{value:.0%} of the rollouts are cut off by max_tokens or seq_len, from {before:.0%}"
        yield Detection(TRUNCATED, value, value - before >= MOST_RISE, message)


def repetition(history: History, bounds: MonitorsConfig) -> Iterator[Detection]:
    """Detect replies that repeat themselves (Holtzman et al. 2020, 1904.09751), if this became worse or lasts."""
    if history.has(REPETITION, NUM):
        value, first = history.now(REPETITION), history.first(REPETITION)
        lasts = history.num(REPETITION) > WINDOW // 2 and value >= history.before(REPETITION) - 0.05
        is_bad = value > bounds.max_repetition and (value >= first + 0.1 or lasts)
        message = f"{value:.0%} of the replies' passages of 4 tokens stand earlier in the same reply"
        yield Detection(REPETITION, value, is_bad, message)


def one_reply(history: History, bounds: MonitorsConfig) -> Iterator[Detection]:
    """Detect that most tasks get the same reply. A constant reply may earn as much as the most frequent right
    answer."""
    if history.has(SAME_REPLY, NUM):
        value = history.now(SAME_REPLY)
        is_bad = value > bounds.max_same_reply and not history.is_solved
        yield Detection(
            SAME_REPLY, value, is_bad, f"{value:.0%} of the replies to different tasks end in the same line"
        )


def invalid_calls(history: History, bounds: MonitorsConfig) -> Iterator[Detection]:
    """Detect that the environment cannot read the policy's tool calls, or its replies because they lack tags.

    The detector raises no alarm while the share of unreadable replies falls, because the policy is still learning the
    form.
    """
    for name, is_good in INVALID.items():
        if history.has(name, NUM + 2):
            value, before = history.now(name), history.before(name)
            value, before = (1.0 - value, 1.0 - before) if is_good else (value, before)
            lasts = history.num(name) > WINDOW // 2 and value > bounds.max_invalid_share and value >= before - 0.05
            message = f"{value:.0%} of the policy's calls or replies cannot be read, from {before:.0%}"
            yield Detection(name, history.now(name), lasts or value - before >= MOST_RISE, message)
