"""Rewards are scorers and functions in our signature or TRL's, with weights and metrics of their own."""

import pytest

from slimrl.errors import RolloutError, UserError
from tests.environments.dataset.files import HOSTILE, answered, functions, made, opened

OURS = """
import asyncio
import numpy

def own(reply, task):
    return len(reply) / task.data["answer"]

def given_only(given):
    return 1.0 if given == "1" else None

async def slow(reply):
    await asyncio.sleep(0)
    return 2

def trl(prompts, completions, answer, **columns):
    assert prompts == ["What is 0 + 1?"] and columns == {"question": prompts}
    return [float(completion == str(one)) for completion, one in zip(completions, answer, strict=True)]

def chat(completions, **columns):
    return [completion[0]["content"] == "1" for completion in completions]

def nothing(completions, **columns):
    return [None] * len(completions)

def numpy_like(completions):
    return numpy.asarray([0.5])

def answers(reply, answer):
    return 0.0

def more(completions, trainer_state):
    return [0.0]

def breaks(reply):
    return {}["x"]

def too_many(completions):
    return [1.0, 1.0]

def scalar(completions):
    return 1.0

def nan(reply): return float("nan")
def text(reply): return "high"
def digits(reply): return "1.0"
def digits_as_bytes(reply): return bytearray(b"1")
def complex_number(reply): return numpy.complex64(0.2 + 0.9j)
"""


def graded(tmp_path, reward, reply="1", rows=None):
    path = functions(tmp_path, OURS)

    def named(one):
        if isinstance(one, dict):
            return {**one, "function": named(one["function"])}
        return one if one in ("exact", "number", "match") else f"{path}:{one}"

    reward = [named(one) for one in reward] if isinstance(reward, list) else named(reward)
    rows = rows or [{"question": "What is 0 + 1?", "answer": 1}]
    return answered(made(tmp_path, rows, test_share=0.0, reward=reward), reply)


@pytest.mark.parametrize(
    ("reward", "wanted"),
    [("own", 1.0), ("slow", 2.0), ("given_only", 1.0), ("trl", 1.0), ("numpy_like", 0.5), ("exact", 1.0)],
)
def test_a_function_of_each_signature_gives_the_reward(tmp_path, reward, wanted):
    turn = graded(tmp_path, reward)
    assert turn.reward == turn.metrics[f"reward_{reward}"] == wanted


def test_rewards_are_weighted_and_each_is_a_metric_unless_it_does_not_apply(tmp_path):
    turn = graded(tmp_path, ["exact", {"function": "slow", "weight": -0.25, "name": "length"}, "nothing"])
    assert turn.reward == 1.0 - 0.5
    assert turn.metrics == {"reward_exact": 1.0, "reward_length": 2.0, "answered": 1.0, "strict": 0.0, "lenient": 1.0}


def test_messages_are_given_to_trl_where_the_prompt_is_messages(tmp_path):
    assert graded(tmp_path, "chat", rows=[{"prompt": [{"role": "user", "content": "x"}]}]).reward == 1.0


FAILURES = {"nan": "nonfinite_reward", "nothing": "no_reward"}
BROKEN = ["breaks", "text", "digits", "digits_as_bytes", "complex_number", "too_many", "scalar", *FAILURES]


@pytest.mark.parametrize("reward", BROKEN)
def test_a_reward_that_fails_drops_the_rollout(tmp_path, reward):
    with pytest.raises(RolloutError, match=reward) as caught:
        graded(tmp_path, reward)
    assert caught.value.reason == FAILURES.get(reward, "reward_error")


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        ("answers", r"takes `reply, answer`.*task\.data"),
        ("more", r"needs `trainer_state`, which only TRL's trainer passes\. Give"),
        ("owm", r"has no `owm`\. Did you mean `own`"),
    ],
)
def test_a_signature_that_is_neither_is_explained(tmp_path, reward, message):
    with pytest.raises(UserError, match=message):
        graded(tmp_path, reward)


CHANGES = """
def columns(completions, answers, **others):
    values = []
    for row in answers:
        row.sort()
        values.append(float(len(row)))
        row.pop()
    return values

def history(prompts, completions, **others):
    values = []
    for prompt, completion in zip(prompts, completions):
        prompt.extend(completion)
        values.append(float(len(prompt)))
    return values

def data(task):
    task.data["answers"].clear()
    task.data["prompt"][0]["content"] += "!"
    return float(len(task.data["prompt"][0]["content"]))
"""


@pytest.mark.parametrize("name", ["columns", "history", "data"])
def test_a_reward_that_changes_its_arguments_changes_nothing_for_later_rollouts(tmp_path, name):
    rows = [{"prompt": [{"role": "user", "content": "q"}], "answers": ["x", "y", "z"]}]
    two = [{"function": f"{functions(tmp_path, CHANGES)}:{name}", "name": one} for one in "ab"]
    taskset = made(tmp_path, rows, test_share=0.0, reward=two)
    turns = [answered(taskset, "reply") for _ in range(3)]
    assert turns[0].reward > 0 and turns[1:] == turns[:1] * 2
    assert len({*turns[0].metrics.values()} - {0.0, 1.0}) == 1  # nor for the other function
    assert opened(taskset)[-1]["content"] == "q"


@pytest.mark.parametrize("scorer", ["exact", "number", "match"])
def test_hostile_replies_earn_nothing_and_break_nothing(tmp_path, scorer):
    rows = [{"question": "How many are there?", "answer": "17"}]
    assert [graded(tmp_path, scorer, reply, rows).reward for reply in HOSTILE] == [0.0] * len(HOSTILE)
