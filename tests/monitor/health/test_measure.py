"""The numbers of rollouts, by hand and against naive versions."""

import random
from dataclasses import replace

import pytest

from slimrl.monitor.health.measure import MAX_ROLLOUTS, common_to_tasks, measure, repetition
from slimrl.types import Rollout

PROMPT = (90, 91)


def rollout(reply, reward=0.0, logprob=-1.0, task="a", **metrics):
    """A rollout of one turn."""
    num = len(reply)
    return Rollout(
        task_id=task,
        token_ids_T=(*PROMPT, *reply),
        loss_mask_T=(False,) * len(PROMPT) + (True,) * num,
        logprobs_T=(0.0,) * len(PROMPT) + (logprob,) * num,
        versions_T=(-1,) * len(PROMPT) + (0,) * num,
        reward=reward,
        turn_rewards=(reward,),
        metrics=metrics,
    )


def saying(*texts):
    """A group of rollouts that say these texts."""
    said = [[{"role": "user", "content": "q"}, {"role": "assistant", "content": text}] for text in texts]
    return [replace(rollout((number,)), messages=tuple(messages)) for number, messages in enumerate(said)]


def test_what_most_tasks_are_told_is_counted_by_the_last_line():
    same = ["The answer is 2.", "**the answer is 2**", "<think>3?</think>Hm.\nThe answer is 2", "The answer is: 2!"]
    assert measure([saying(text) for text in [*same, "The answer is 3.", "-2"]])["monitor/same_reply"] == 4 / 6
    assert measure([saying("2", "2") for _ in range(6)])["monitor/same_reply"] == 1.0
    fenced = ["<answer>\n2\n</answer>", "```\n2\n```", "```text\n2```", "**2**", "2.", "3"]
    assert measure([saying(text) for text in fenced])["monitor/same_reply"] == pytest.approx(5 / 6)
    assert "monitor/same_reply" not in measure([saying("2", "2", "2") for _ in range(5)])  # too few tasks
    two_turns = Rollout("a", (1, 2, 3), (True, False, True), (0.0,) * 3, (0, -1, 0), 1.0, (0.0, 1.0))
    played = [replace(two_turns, messages=one.messages) for (one,) in [saying("done")] * 9]
    assert "monitor/same_reply" not in measure([[one] for one in played])


def test_surprise_and_repetition_by_hand():
    assert measure([]) == measure([[], []]) == {}
    assert measure([[rollout((1, 2), logprob=-1.0), rollout((1, 2), logprob=-3.0)]])["monitor/surprise"] == 2.0
    assert [repetition(one) for one in ([[1, 2, 3, 4, 5]] * 3, [[1, 2, 3]])] == [0.0, 0.0]  # within replies alone
    assert repetition([[7] * 13]) == pytest.approx(0.9)


def naive_common(replies):
    """The definition, pair of rollouts by pair of rollouts."""

    def pairs(rollout):
        return {pair for reply in rollout for pair in zip((-1, *reply), (*reply, -2), strict=True)}

    sets = [[pairs(rollout) for rollout in group] for group in replies]
    within, across = [], []
    for number, group in enumerate(sets):
        others = [one for place, other in enumerate(sets) if place != number for one in other]
        for place, own in enumerate(group):
            siblings = group[:place] + group[place + 1 :]
            within.append(sum(pair in one for pair in own for one in siblings) / (len(own) * len(siblings)))
            across.append(sum(pair in one for pair in own for one in others) / (len(own) * len(others)))
    return sum(within) / len(within), sum(across) / len(across)


def test_what_tasks_have_in_common_is_as_the_naive_count_says():
    rng = random.Random(1)
    for _ in range(20):
        replies = [
            [[[rng.randrange(6) for _ in range(rng.randint(1, 6))] for _ in range(rng.randint(1, 2))] for _ in range(3)]
            for _ in range(rng.randint(2, 4))
        ]
        within, across = naive_common(replies)
        found = common_to_tasks(replies)
        assert found["monitor/shared_across_tasks"] == pytest.approx(across)
        assert found["monitor/task_dependence"] == pytest.approx(within - across)


def test_replies_depend_on_the_task_or_are_one_text():
    answers = [[rollout((number, number, number))] * 4 for number in range(5)]
    uniform = [[rollout((1, 1, 1))] * 4 for _ in range(5)]
    assert measure(answers)["monitor/task_dependence"] == 1.0
    assert measure(uniform)["monitor/task_dependence"] == 0.0
    assert measure(uniform)["monitor/shared_across_tasks"] == 1.0
    # Yes or no, always right: half of the other tasks have the same answer.
    classes = [[rollout((number % 2,))] * 4 for number in range(6)]
    assert measure(classes)["monitor/task_dependence"] == pytest.approx(0.6)
    assert "monitor/task_dependence" not in measure([[rollout((1,)), rollout((2,))]])


def test_right_answers_are_those_of_the_environment():
    group = [rollout((1,), 1.0, exact=1.0, won=0.0), rollout((2,), 0.4, exact=0.9), rollout((3,), 0.2, exact=0.0)]
    found = measure([group])
    assert found["monitor/right"] == pytest.approx(1 / 3)
    assert (found["monitor/right_reward"], found["monitor/wrong_reward"]) == (1.0, pytest.approx(0.3))
    assert "monitor/right" not in measure([[rollout((1,), 1.0, mine=1.0)]])


def test_of_many_rollouts_whole_groups_are_read_and_all_rewards_counted():
    groups = [[rollout((1, 2, 3, 4), float(number % 2))] * 8 for number in range(100)]
    groups[1] = [rollout((5,) * 9, 0.0)] * 8  # at this number every seventh group is read, and not this one
    found = measure(groups)
    assert (found["monitor/repetition"], found["monitor/surprise"]) == (0.0, 1.0)
    loops, plain = (1, 2, 3, 4) * 8, tuple(range(100, 132))  # environments that alternate
    groups = [[rollout(plain if number % 2 else loops)] for number in range(2 * MAX_ROLLOUTS)]
    assert 0.3 < measure(groups)["monitor/repetition"] < 0.6
