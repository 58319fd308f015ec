"""Each detector on made-up curves: what is healthy and looks odd, and what is not healthy."""

import pytest

from slimrl.config.monitors import MonitorsConfig
from slimrl.monitor.health.catalogue import MONITORS
from slimrl.monitor.health.history import History

DETECT = {monitor.name: monitor.look for monitor in MONITORS}
NUM = 30


def line(start, end, num=NUM):
    return [start + (end - start) * place / (num - 1) for place in range(num)]


REWARDS = {"reward/min": [0.0] * NUM, "reward/max": [1.0] * NUM}
FLAT = {**REWARDS, "reward/mean": [0.4] * NUM}
RISING = {**REWARDS, "reward/mean": line(0.2, 0.7)}
SOLVED = {**REWARDS, "reward/mean": line(0.5, 0.98)}
BETTER = {**REWARDS, "reward/mean": [0.2] * 20 + [0.6] * 10}
EQUAL = {"reward/min": [0.5] * 5, "reward/max": [0.5] * 5, "reward/mean": [0.5] * 5}
KL, AGE, STALE, STARTED = "guard/mismatch_kl", "async/age_mean", "drop/stale", "rollout/started"
SURPRISE, ENTROPY = "monitor/surprise", "loss/entropy"
LENGTH, TURNS, PAID = "rollout/tokens_sampled_mean", "rollout/turns_mean", "monitor/length_reward"
SPREAD, STD, ZERO = "monitor/spread_within", "reward/std", "reward/zero_signal_groups"
EVEN = {LENGTH: [40.0] * NUM, TURNS: [1.0] * NUM, **FLAT}
DEPENDENCE, SHARED = "monitor/task_dependence", "monitor/shared_across_tasks"
RIGHT, WRONG_REWARD, RIGHT_REWARD = "monitor/right", "monitor/wrong_reward", "monitor/right_reward"
GONE = {ENTROPY: [0.001] * NUM, **FLAT}


def lengths(start, end, correlation=0.0, rewards=FLAT):
    return {LENGTH: [start] * 20 + [end] * 10, TURNS: [1.0] * NUM, PAID: [correlation] * NUM, **rewards}


def paid(wrong, share=0.3):
    return {WRONG_REWARD: [wrong] * NUM, RIGHT_REWARD: [1.0] * NUM, RIGHT: [share] * NUM, **FLAT}


def held_out(exact):
    name = "held_out/reward_greedy"
    ends = {name: [0.3, 0.8], f"{name}_low": [0.2, 0.7], f"{name}_high": [0.4, 0.9], "held_out/num": [200.0] * 2}
    return {"held_out/exact_greedy": exact, **ends}


def gap(end, half=0.03):
    """The first and the last step have a held-out reward, with an interval of this half width."""
    name, last = "held_out/reward_sampled", NUM - 1
    held = {name: (0.2, end), f"{name}_low": (0.2 - half, end - half), f"{name}_high": (0.2 + half, end + half)}
    return {**RISING, **{key: {0: then, last: now} for key, (then, now) in held.items()}}


CASES = {
    "mismatch": [
        (False, {KL: [3e-9] * 10}),
        (True, {KL: [3e-9, 1e-6, 2e-4, 8e-4]}),  # float32 with old weights
        (False, {KL: [1e-3, 1.6e-3, 0.9e-3, 1.5e-3]}),
        (True, {KL: [1e-3, 4e-3, 7e-3, 9e-3]}),  # bfloat16, long before the guard
        (False, {KL: [8e-3, 1.2e-2, 1e-2, 1.2e-2]}),  # weights of 8 bits
        (False, {KL: [1e-3, 0.03, 0.08, 0.04], AGE: [2.0] * 4}),  # two versions behind, as asked
        (True, {KL: [1e-3, 0.03, 0.3, 1.0], AGE: [2.0] * 4}),
        (True, {STALE: [40.0] * 5, STARTED: [64.0] * 5}),  # most rollouts are played for nothing
        (False, {STALE: [8.0] * 5, STARTED: [64.0] * 5}),
    ],
    "one_reply": [
        (False, {"monitor/same_reply": line(0.2, 0.6), **FLAT}),
        (True, {"monitor/same_reply": line(0.2, 0.93), **FLAT}),
        (False, {"monitor/same_reply": line(0.2, 0.93), **SOLVED}),
    ],
    "entropy_collapse": [
        (False, {SURPRISE: line(0.5, 0.1), **FLAT}),
        (True, {SURPRISE: [0.5] * 20 + [0.02] * 10, **FLAT}),
        (False, {SURPRISE: [0.5] * 20 + [0.02] * 10, **SOLVED}),
        (False, {SURPRISE: [4.0] * 20 + [0.3] * 10, **FLAT}),
        (True, GONE),
        (False, {ENTROPY: [0.013] * NUM, **FLAT}),
        (False, {"distill/teacher_logprob": [-1.0] * NUM, **GONE}),
    ],
    "length": [
        (False, lengths(50.0, 80.0)),
        (True, lengths(50.0, 110.0)),
        (True, lengths(50.0, 80.0, correlation=0.6)),
        (True, lengths(50.0, 20.0)),
        (False, lengths(50.0, 20.0, rewards=BETTER)),
        # More turns are no longer replies.
        (False, {LENGTH: [40.0] * 20 + [120.0] * 10, TURNS: [2.0] * 20 + [6.0] * 10, **FLAT}),
        (True, {"rollout/truncated": [0.1] * 20 + [0.6] * 10, **EVEN}),
        (False, {"rollout/truncated": [0.7] * 20 + [0.1] * 10, **EVEN}),
    ],
    "repetition": [
        (True, {"monitor/repetition": [0.1] * 10 + [0.6] * 3}),
        (True, {"monitor/repetition": [0.6] * 15}),
        (False, {"monitor/repetition": [0.6] * 5}),
        (False, {"monitor/repetition": line(0.9, 0.45)}),
        (False, {"monitor/repetition": [0.35] * 15}),
    ],
    "invalid_calls": [
        (False, {"env/tagged": line(0.0, 0.4)}),  # they become fewer
        (True, {"env/tagged": [0.1] * NUM}),
        (True, {"env/invalid_share": [0.05] * 20 + [0.4] * 5}),
        (False, {"env/invalid_share": [0.25] * NUM}),
    ],
    "reward_spread": [
        (True, {STD: [0.0] * 5, **EQUAL}),
        (True, {STD: [5e-17] * 5, SPREAD: [0.0] * 5, **EQUAL}),
        (True, {STD: [0.3] * NUM, SPREAD: [0.005] * NUM, **FLAT}),  # the task decides
        (False, {STD: [0.3] * NUM, SPREAD: [0.3] * NUM, **FLAT}),
        (False, {STD: [0.01] * NUM, SPREAD: [0.01] * NUM, **SOLVED}),
        (None, {STD: [0.0] * 6, "reward/mean": [0.0] * 6, "distill/reverse_kl": [0.3] * 6}),
    ],
    "zero_signal": [
        (True, {ZERO: [1.0] * NUM, **FLAT}),
        (False, {ZERO: [0.9] * NUM, **FLAT}),
        (False, {ZERO: [1.0] * NUM, **SOLVED}),
    ],
    "duplicates": [
        (False, {"monitor/duplicates": [0.9] * 3, "monitor/duplicates_expected": [0.85] * 3}),
        (True, {"monitor/duplicates": [1.0] * 3, "monitor/duplicates_expected": [0.01] * 3}),
    ],
    "judge": [
        (True, {"env/judge_yes": [1.0] * 3, "env/judge_disagrees": [0.6] * 3}),
        (False, {"env/judge_yes": [1.0] * 3, "env/judge_disagrees": [0.1] * 3}),  # the policy is right
        (True, {"env/judge_yes": [0.0] * 3, "env/judge_disagrees": [0.35] * 3}),
        (True, {"env/judge_yes": [0.5] * 3, "env/judge_disagrees": [0.5] * 3}),
        (False, {"env/judge_yes": [0.5] * 3, "env/judge_disagrees": [0.35] * 3}),
    ],
    "held_out_gap": [(True, gap(0.25)), (False, gap(0.6)), (False, gap(0.25, half=0.2))],
    "reward_hacking": [
        (True, {DEPENDENCE: line(0.3, 0.01), SHARED: line(0.4, 0.9), **RISING}),  # one text for all tasks
        (False, {DEPENDENCE: line(0.3, 0.01), SHARED: line(0.4, 0.9), **FLAT}),
        (True, {DEPENDENCE: line(0.3, 0.05), SHARED: line(0.6, 0.3), **RISING}),  # as many random digits are
        (False, {DEPENDENCE: line(0.1, 0.3), SHARED: line(0.1, 0.6), **RISING}),  # it learns
        (True, {DEPENDENCE: [0.001] * NUM, SHARED: line(0.01, 0.9), **RISING}),  # noise becomes one text
        (True, paid(0.99)),
        (False, paid(0.8)),  # partial credit
        (False, paid(0.99, share=0.7)),
        (True, {RIGHT: [0.4] * 15 + [0.1] * 15, **RISING}),
        (False, {RIGHT: [0.4] * 15 + [0.1] * 15, **FLAT}),
        (False, {RIGHT: [0.02] * 15 + [0.0] * 15, **RISING}),
        (True, held_out([0.4, 0.1])),
        (False, held_out([0.4, 0.38])),
        # An environment may count under the name of a share.
        (None, {**held_out([]), "held_out/correct_greedy": [3.0, -1.0]}),
    ],
}  # fmt: skip


def detected(name, columns, bounds):
    """Return True if the detector finds a fault at the last of the rows, None if it finds nothing. A column is a list
    from the first step on, or values by their steps."""
    history = History()
    tables = {key: values if isinstance(values, dict) else dict(enumerate(values)) for key, values in columns.items()}
    for step in range(max(max(values, default=0) for values in tables.values()) + 1):
        history.add({key: values[step] for key, values in tables.items() if step in values})
    found = DETECT[name](history, bounds)
    return found and found.is_bad


@pytest.mark.parametrize(
    ("name", "expected", "columns"), [(name, *case) for name, cases in CASES.items() for case in cases]
)
def test_faults_are_told_from_what_looks_odd(name, expected, columns):
    assert detected(name, columns, MonitorsConfig()) is expected


def test_every_detector_has_cases():
    assert set(CASES) == set(DETECT)


def test_a_bound_can_be_set():
    assert detected("entropy_collapse", GONE, MonitorsConfig(min_entropy=1e-4)) is False


@pytest.mark.parametrize("name", DETECT)
def test_nothing_is_said_of_a_run_without_steps_or_without_the_metric(name):
    history = History()
    assert DETECT[name](history, MonitorsConfig()) is None
    history.add({"time/step_s": 1.0, "loss/policy": float("nan")})
    assert DETECT[name](history, MonitorsConfig()) is None
