"""Each detector on made-up curves: what is healthy and looks odd, and what is not healthy."""

import pytest

from slimrl.config.monitors import MonitorsConfig
from slimrl.monitor.health.catalogue import MONITORS
from slimrl.monitor.health.history import History

DETECT = {monitor.name: monitor.look for monitor in MONITORS}
NUM = 30


def line(start, end, num=NUM):
    return [start + (end - start) * place / (num - 1) for place in range(num)]


def is_bad(name, config=None, **columns):
    """Whether the detector finds a fault at the last of the rows; names have `__` for the slash."""
    history, num = History(), max(len(values) for values in columns.values())
    for place in range(num):
        history.add({key.replace("__", "/"): values[place] for key, values in columns.items() if place < len(values)})
    found = DETECT[name](history, config or MonitorsConfig())
    assert found is not None
    return found.is_bad


REWARDS = {"reward__min": [0.0] * NUM, "reward__max": [1.0] * NUM}
FLAT = {**REWARDS, "reward__mean": [0.4] * NUM}
RISING = {**REWARDS, "reward__mean": line(0.2, 0.7)}
SOLVED = {**REWARDS, "reward__mean": line(0.5, 0.98)}


@pytest.mark.parametrize("name", DETECT)
def test_nothing_is_said_of_a_run_without_steps_or_without_the_metric(name):
    history = History()
    assert DETECT[name](history, MonitorsConfig()) is None
    history.add({"time/step_s": 1.0, "loss/policy": float("nan")})
    assert DETECT[name](history, MonitorsConfig()) is None


@pytest.mark.parametrize(
    ("values", "age", "expected"),
    [
        ([3e-9] * 10, 0.0, False),
        ([3e-9, 1e-6, 2e-4, 8e-4], 0.0, True),  # float32 with old weights
        ([1e-3, 1.6e-3, 0.9e-3, 1.5e-3], 0.0, False),
        ([1e-3, 4e-3, 7e-3, 9e-3], 0.0, True),  # bfloat16, long before the guard
        ([8e-3, 1.2e-2, 1e-2, 1.2e-2], 0.0, False),  # weights of 8 bits
        ([1e-3, 0.03, 0.08, 0.04], 2.0, False),  # two versions behind, as asked
        ([1e-3, 0.03, 0.3, 1.0], 2.0, True),
    ],
)
def test_mismatch_is_more_than_rounding(values, age, expected):
    assert is_bad("mismatch", guard__mismatch_kl=values, async__age_mean=[age] * len(values)) is expected


@pytest.mark.parametrize(
    ("shares", "rewards", "expected"),
    [(line(0.2, 0.6), FLAT, False), (line(0.2, 0.93), FLAT, True), (line(0.2, 0.93), SOLVED, False)],
)
def test_one_reply_to_all_tasks_is_noticed_until_they_are_solved(shares, rewards, expected):
    assert is_bad("one_reply", monitor__same_reply=shares, **rewards) is expected


def test_rollouts_that_are_played_for_nothing_are_a_mismatch():
    started = {"rollout__started": [64.0] * 5}
    assert is_bad("mismatch", drop__stale=[40.0] * 5, **started)
    assert not is_bad("mismatch", drop__stale=[8.0] * 5, **started)


def test_entropy_may_fall_slowly_or_when_tasks_are_solved():
    assert not is_bad("entropy_collapse", monitor__surprise=line(0.5, 0.1), **FLAT)
    assert is_bad("entropy_collapse", monitor__surprise=[0.5] * 20 + [0.02] * 10, **FLAT)
    assert not is_bad("entropy_collapse", monitor__surprise=[0.5] * 20 + [0.02] * 10, **SOLVED)
    assert not is_bad("entropy_collapse", monitor__surprise=[4.0] * 20 + [0.3] * 10, **FLAT)


def test_an_entropy_that_is_gone_is_a_collapse_but_with_a_teacher():
    gone = [0.001] * NUM
    assert is_bad("entropy_collapse", loss__entropy=gone, **FLAT)
    assert not is_bad("entropy_collapse", loss__entropy=[0.013] * NUM, **FLAT)
    assert not is_bad("entropy_collapse", loss__entropy=gone, distill__teacher_logprob=[-1.0] * NUM, **FLAT)
    assert not is_bad("entropy_collapse", MonitorsConfig(min_entropy=1e-4), loss__entropy=gone, **FLAT)


def test_length_may_drift_and_not_jump():
    def drift(start, end, correlation=0.0, rewards=FLAT):
        lengths = [start] * 20 + [end] * 10
        columns = {"rollout__tokens_sampled_mean": lengths, "monitor__length_reward": [correlation] * NUM}
        return is_bad("length", rollout__turns_mean=[1.0] * NUM, **columns, **rewards)

    assert not drift(50.0, 80.0)
    assert drift(50.0, 110.0)
    assert drift(50.0, 80.0, correlation=0.6)
    assert drift(50.0, 20.0)
    assert not drift(50.0, 20.0, rewards={**REWARDS, "reward__mean": [0.2] * 20 + [0.6] * 10})


def test_more_turns_are_no_longer_replies():
    turns = [2.0] * 20 + [6.0] * 10
    lengths = [20.0 * num for num in turns]
    assert not is_bad("length", rollout__tokens_sampled_mean=lengths, rollout__turns_mean=turns, **FLAT)


def test_replies_that_begin_to_be_cut_off_are_a_fault_and_those_that_stop_to_be_are_none():
    even = {"rollout__tokens_sampled_mean": [40.0] * NUM, "rollout__turns_mean": [1.0] * NUM, **FLAT}
    assert is_bad("length", rollout__truncated=[0.1] * 20 + [0.6] * 10, **even)
    assert not is_bad("length", rollout__truncated=[0.7] * 20 + [0.1] * 10, **even)


def test_repetition_that_is_new_or_lasts():
    assert is_bad("repetition", monitor__repetition=[0.1] * 10 + [0.6] * 3)
    assert is_bad("repetition", monitor__repetition=[0.6] * 15)
    assert not is_bad("repetition", monitor__repetition=[0.6] * 5)
    assert not is_bad("repetition", monitor__repetition=line(0.9, 0.45))
    assert not is_bad("repetition", monitor__repetition=[0.35] * 15)


def test_invalid_calls_are_let_alone_while_they_become_fewer():
    assert not is_bad("invalid_calls", env__tagged=line(0.0, 0.4))
    assert is_bad("invalid_calls", env__tagged=[0.1] * NUM)
    assert is_bad("invalid_calls", env__invalid_share=[0.05] * 20 + [0.4] * 5)
    assert not is_bad("invalid_calls", env__invalid_share=[0.25] * NUM)


def test_rewards_that_are_equal_or_that_the_task_decides():
    equal = {"reward__min": [0.5] * 5, "reward__max": [0.5] * 5, "reward__mean": [0.5] * 5}
    assert is_bad("reward_spread", reward__std=[0.0] * 5, **equal)
    assert is_bad("reward_spread", reward__std=[5e-17] * 5, monitor__spread_within=[0.0] * 5, **equal)
    assert is_bad("reward_spread", reward__std=[0.3] * NUM, monitor__spread_within=[0.005] * NUM, **FLAT)
    assert not is_bad("reward_spread", reward__std=[0.3] * NUM, monitor__spread_within=[0.3] * NUM, **FLAT)
    assert not is_bad("reward_spread", reward__std=[0.01] * NUM, monitor__spread_within=[0.01] * NUM, **SOLVED)


def test_no_signal_is_a_fault_until_the_tasks_are_solved():
    assert is_bad("zero_signal", reward__zero_signal_groups=[1.0] * NUM, **FLAT)
    assert not is_bad("zero_signal", reward__zero_signal_groups=[0.9] * NUM, **FLAT)
    assert not is_bad("zero_signal", reward__zero_signal_groups=[1.0] * NUM, **SOLVED)


def test_duplicates_are_those_that_the_policy_does_not_explain():
    assert not is_bad("duplicates", monitor__duplicates=[0.9] * 3, monitor__duplicates_expected=[0.85] * 3)
    assert is_bad("duplicates", monitor__duplicates=[1.0] * 3, monitor__duplicates_expected=[0.01] * 3)


def test_a_judge_that_says_yes_to_all_is_told_from_a_policy_that_is_right():
    assert is_bad("judge", env__judge_yes=[1.0] * 3, env__judge_disagrees=[0.6] * 3)
    assert not is_bad("judge", env__judge_yes=[1.0] * 3, env__judge_disagrees=[0.1] * 3)
    assert is_bad("judge", env__judge_yes=[0.0] * 3, env__judge_disagrees=[0.35] * 3)
    assert is_bad("judge", env__judge_yes=[0.5] * 3, env__judge_disagrees=[0.5] * 3)
    assert not is_bad("judge", env__judge_yes=[0.5] * 3, env__judge_disagrees=[0.35] * 3)


def test_a_held_out_reward_follows_the_training_reward_within_its_interval():
    def gap(end, half=0.03):
        name = "held_out__reward_sampled"
        ends = {f"{name}_low": [0.2 - half, end - half], f"{name}_high": [0.2 + half, end + half]}
        history, rewards = History(), line(0.2, 0.7)
        for place, reward in enumerate(rewards):
            row = {"reward/mean": reward, "reward/min": 0.0, "reward/max": 1.0}
            if place in (0, NUM - 1):
                values = {name: [0.2, end], **ends}
                row |= {key.replace("__", "/"): pair[place > 0] for key, pair in values.items()}
            history.add(row)
        return DETECT["held_out_gap"](history, MonitorsConfig()).is_bad

    assert gap(0.25)
    assert not gap(0.6)
    assert not gap(0.25, half=0.2)


def test_replies_that_become_one_text_or_noise_while_the_reward_rises():
    uniform = {"monitor__task_dependence": line(0.3, 0.01), "monitor__shared_across_tasks": line(0.4, 0.9)}
    assert is_bad("reward_hacking", **uniform, **RISING)
    assert not is_bad("reward_hacking", **uniform, **FLAT)
    varied = {"monitor__task_dependence": line(0.3, 0.05), "monitor__shared_across_tasks": line(0.6, 0.3)}
    assert is_bad("reward_hacking", **varied, **RISING)  # as many random digits are
    learns = {"monitor__task_dependence": line(0.1, 0.3), "monitor__shared_across_tasks": line(0.1, 0.6)}
    assert not is_bad("reward_hacking", **learns, **RISING)
    noise = {"monitor__task_dependence": [0.001] * NUM, "monitor__shared_across_tasks": line(0.01, 0.9)}
    assert is_bad("reward_hacking", **noise, **RISING)


def test_wrong_answers_that_earn_what_right_ones_do():
    def paid(wrong, right=1.0, share=0.3):
        rewards = {"monitor__wrong_reward": [wrong] * NUM, "monitor__right_reward": [right] * NUM}
        return is_bad("reward_hacking", monitor__right=[share] * NUM, **rewards, **FLAT)

    assert paid(0.99)
    assert not paid(0.8)  # partial credit
    assert not paid(0.99, share=0.7)


def test_right_answers_that_are_lost_while_the_reward_rises():
    assert is_bad("reward_hacking", monitor__right=[0.4] * 15 + [0.1] * 15, **RISING)
    assert not is_bad("reward_hacking", monitor__right=[0.4] * 15 + [0.1] * 15, **FLAT)
    assert not is_bad("reward_hacking", monitor__right=[0.02] * 15 + [0.0] * 15, **RISING)


def test_right_answers_that_are_lost_on_held_out_tasks():
    name = "held_out__reward_greedy"
    columns = {name: [0.3, 0.8], f"{name}_low": [0.2, 0.7], f"{name}_high": [0.4, 0.9], "held_out__num": [200.0] * 2}
    assert is_bad("reward_hacking", held_out__exact_greedy=[0.4, 0.1], **columns)
    assert not is_bad("reward_hacking", held_out__exact_greedy=[0.4, 0.38], **columns)


def test_what_an_environment_counts_under_the_name_of_a_share_is_no_share():
    history, name = History(), "held_out/reward_greedy"
    for place in range(2):
        history.add({name: 0.2 + place / 2, f"{name}_low": 0.1 + place / 2, "held_out/correct_greedy": 3.0 - 4 * place})
        assert DETECT["reward_hacking"](history, MonitorsConfig()) is None


def test_a_policy_with_a_teacher_needs_no_spread_of_rewards():
    history = History()
    for _ in range(6):
        history.add({"reward/std": 0.0, "reward/mean": 0.0, "distill/reverse_kl": 0.3})
    assert DETECT["reward_spread"](history, MonitorsConfig()) is None
