"""Detectors of faults in what the policy writes: lengths, repetition, replies that cannot be read."""

import math

from slimrl.config.monitors import MonitorsConfig
from slimrl.monitor.health.finding import Finding, worst
from slimrl.monitor.health.history import NUM, WINDOW, History

LENGTH, TURNS, TRUNCATED = "rollout/tokens_sampled_mean", "rollout/turns_mean", "rollout/truncated"
PAID = 0.4  # correlation of length and reward within groups
MOST_RISE = 0.3  # of a share, within the window
# What environments report of replies that they could not read, each with whether it is the share of good ones.
INVALID = {"env/invalid_share": False, "env/tagged": True, "env/valid": True}


def length(history: History, bounds: MonitorsConfig) -> Finding | None:
    """Whether replies suddenly become longer, shorter without earning more, or cut off.

    Growth is suspect sooner where within groups the longer replies earn more: the reward may pay for length itself
    (Singhal et al. 2023, 2310.03716).
    """
    return worst([_drift(history, bounds), _cut(history)])


def _drift(history: History, bounds: MonitorsConfig) -> Finding | None:
    if LENGTH not in history.row or history.num(LENGTH) < NUM + 2:
        return None
    # By turn, as longer episodes are no longer replies.
    turns = max(1.0, history.now(TURNS)), max(1.0, history.before(TURNS))
    value, before = history.now(LENGTH) / turns[0], history.before(LENGTH) / turns[1]
    factor = value / before if before > 0 else 1.0
    correlation = history.now("monitor/length_reward", NUM + 2)
    is_paid = correlation >= PAID
    is_long = factor >= (math.sqrt(bounds.max_length_factor) if is_paid else bounds.max_length_factor)
    is_short = factor <= 1.0 / bounds.max_length_factor and not history.has_risen()
    why = f", and within groups longer ones earn more (correlation {correlation:.2f})" if is_long and is_paid else ""
    return Finding(
        LENGTH, value, is_long or is_short, f"replies went from {before:.0f} to {value:.0f} tokens on average{why}"
    )


def _cut(history: History) -> Finding | None:
    if TRUNCATED not in history.row or history.num(TRUNCATED) < NUM + 2:
        return None
    value, before = history.now(TRUNCATED), history.before(TRUNCATED)
    return Finding(
        TRUNCATED,
        value,
        value - before >= MOST_RISE,
        f"{value:.0%} of the rollouts are cut off by max_tokens or seq_len, from {before:.0%}",
    )


def repetition(history: History, bounds: MonitorsConfig) -> Finding | None:
    """Whether replies go in circles (Holtzman et al. 2020, 1904.09751), and do not become better by themselves."""
    name = "monitor/repetition"
    if name not in history.row or history.num(name) < NUM:
        return None
    value, first = history.now(name), history.first(name)
    is_new = value >= first + 0.1
    lasts = history.num(name) > WINDOW // 2 and value >= history.before(name) - 0.05
    return Finding(
        name,
        value,
        value > bounds.max_repetition and (is_new or lasts),
        f"{value:.0%} of the replies' passages of 4 tokens stand earlier in the same reply",
    )


def one_reply(history: History, bounds: MonitorsConfig) -> Finding | None:
    """Whether most replies to different tasks say one thing: a constant may earn what the commonest answer earns."""
    name = "monitor/same_reply"
    if name not in history.row or history.num(name) < NUM:
        return None
    value = history.now(name)
    is_bad = value > bounds.max_same_reply and not history.is_solved
    return Finding(name, value, is_bad, f"{value:.0%} of the replies to different tasks end in the same line")


def invalid_calls(history: History, bounds: MonitorsConfig) -> Finding | None:
    """Whether the environment cannot read what the policy writes: calls of tools, or replies without their tags.

    A policy that is still learning the form is let alone while the share falls.
    """
    return worst([_unreadable_share(history, bounds, name, is_good) for name, is_good in INVALID.items()])


def _unreadable_share(history: History, bounds: MonitorsConfig, name: str, is_good: bool) -> Finding | None:
    if name not in history.row or history.num(name) < NUM + 2:
        return None
    value, before = history.now(name), history.before(name)
    value, before = (1.0 - value, 1.0 - before) if is_good else (value, before)
    lasts = history.num(name) > WINDOW // 2 and value > bounds.max_invalid_share and value >= before - 0.05
    return Finding(
        name,
        history.now(name),
        lasts or value - before >= MOST_RISE,
        f"{value:.0%} of the policy's calls or replies cannot be read, from {before:.0%}",
    )
