"""Rewards are scorers and functions in our signature or TRL's, with weights and metrics of their own."""

import pytest

from slimrl.errors import RolloutError, UserError
from tests.environments.dataset.files import answered, functions, made, opened

OURS = """
import asyncio

NUM_LOADED = []

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
    import numpy
    return numpy.asarray([0.5])

def answers(reply, answer):
    return 0.0

def more(completions, trainer_state):
    return [0.0]

def breaks(reply):
    return {}["x"]

def nan(reply):
    return float("nan")

def text(reply):
    return "high"

def digits(reply):
    return "1.0"

def digits_as_bytes(reply):
    return bytearray(b"1")

def complex_number(reply):
    import numpy
    return numpy.complex64(0.2 + 0.9j)

def too_many(completions):
    return [1.0, 1.0]

def scalar(completions):
    return 1.0
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


def test_rewards_are_weighted_and_each_is_a_metric(tmp_path):
    turn = graded(tmp_path, ["exact", {"function": "slow", "weight": -0.25, "name": "length"}])
    assert turn.reward == 1.0 - 0.5
    assert turn.metrics == {"reward_exact": 1.0, "reward_length": 2.0, "answered": 1.0, "strict": 0.0, "lenient": 1.0}


def test_a_reward_that_does_not_apply_is_left_out(tmp_path):
    turn = graded(tmp_path, ["exact", "nothing"])
    assert turn.reward == 1.0
    assert "reward_nothing" not in turn.metrics
    with pytest.raises(RolloutError) as caught:
        graded(tmp_path, "nothing")
    assert caught.value.reason == "no_reward"


def test_messages_are_given_to_trl_where_the_prompt_is_messages(tmp_path):
    rows = [{"prompt": [{"role": "user", "content": "x"}]}]
    assert graded(tmp_path, "chat", rows=rows).reward == 1.0


@pytest.mark.parametrize(
    ("reward", "reason"),
    [
        ("breaks", "reward_error"),
        ("nan", "nonfinite_reward"),
        ("text", "reward_error"),
        ("digits", "reward_error"),
        ("digits_as_bytes", "reward_error"),
        ("complex_number", "reward_error"),
        ("too_many", "reward_error"),
        ("scalar", "reward_error"),
    ],
)
def test_a_reward_that_fails_drops_the_rollout(tmp_path, reward, reason):
    with pytest.raises(RolloutError) as caught:
        graded(tmp_path, reward)
    assert caught.value.reason == reason
    assert reward in caught.value.detail or reason == "nonfinite_reward"


def test_a_signature_that_is_neither_is_explained(tmp_path):
    with pytest.raises(UserError, match=r"takes `reply, answer`.*task\.data"):
        graded(tmp_path, "answers")
    with pytest.raises(UserError, match=r"needs `trainer_state`, which only TRL's trainer passes\. Give"):
        graded(tmp_path, "more")
    with pytest.raises(UserError, match=r"has no `owm`\. Did you mean `own`"):
        graded(tmp_path, "owm")


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


HOSTILE = [
    "",
    " ",
    "\x00\x1b[2J",
    "\ud800",
    "x" * 100_000,
    "<answer>" * 5000,
    "<answer></answer>",
    "<answer>\x00</answer>",
    "</answer><answer>",
    "<think>" * 1000,
    "<answer><answer>1</answer></answer>",
    "[" * 50_000,
    '{"answer": 1}' * 1000,
    "‮1‬",
    "\u200b1",
    "answer answer answer",
    "0\n1\n2\n3",
    "<answer>0 1 2 3</answer>",
    "The answer is the correct one.",
    "<tool>f(1)</tool>",
    "</s><|im_end|>",
]


@pytest.mark.parametrize("number", range(len(HOSTILE)))
@pytest.mark.parametrize("scorer", ["exact", "number", "match"])
def test_hostile_replies_earn_nothing_and_break_nothing(tmp_path, number, scorer):
    rows = [{"question": "How many are there?", "answer": "17"}]
    assert graded(tmp_path, scorer, HOSTILE[number], rows).reward == 0.0
