"""The environment of experiments/context_distill: who can know what, and what counts as right."""

import asyncio
from pathlib import Path

import pytest

from slimrl.environments.find import load_taskset, tasks_of
from slimrl.environments.scripts import demonstrate

FILE = Path(__file__).parents[2] / "experiments" / "context_distill" / "lands.py"


def lands(**args):
    return load_taskset(f"{FILE}:Lands", args)


def opening_of(taskset, task):
    return asyncio.run(taskset.environment(task).start())


def reward_of(taskset, task, reply):
    return asyncio.run(taskset.environment(task).step(reply)).reward


def test_the_splits_ask_about_the_same_lands_in_other_words():
    train, test = (tasks_of(lands(), split) for split in ("train", "test"))
    assert {task.data["land"] for task in train} == {task.data["land"] for task in test}
    assert not {task.data["question"] for task in train} & {task.data["question"] for task in test}
    assert len(test) == 128 and tasks_of(lands(), "validation") == []


def test_the_document_has_every_answer_and_the_student_none():
    student, teacher = lands(), lands(document=True)
    for task in tasks_of(student, "test"):
        fact = f"The flag of {task.data['land']} is {task.data['colour']}."
        (system, question), (more, same) = opening_of(student, task), opening_of(teacher, task)
        assert question == same and fact in more["content"] and more["content"].endswith(system["content"])
        assert task.data["land"] not in system["content"]


@pytest.mark.parametrize(
    ("reply", "is_right"),
    [("The flag of {land} is {colour}.", 1.0), ("{colour}", 1.0), ("{colour} or pink-ish", 1.0), ("flag", 0.0)],
)
def test_the_right_colour_counts(reply, is_right):
    task = tasks_of(lands(), "test")[0]
    assert reward_of(lands(), task, reply.format(**task.data)) == is_right


def test_naming_a_second_colour_does_not():
    task = tasks_of(lands(), "test")[0]
    other = next(colour for colour in ("red", "blue") if colour != task.data["colour"])
    assert reward_of(lands(), task, other) == 0.0
    assert reward_of(lands(), task, f"{task.data['colour']} and {other}") == 0.0


def test_the_expert_gives_no_fact_away():
    taskset = lands()
    tasks = tasks_of(taskset, "train")
    names = {task.data["land"] for task in tasks}
    texts = [" ".join(message["content"] for message in demonstrate(taskset, task)) for task in tasks]
    assert not [text for text in texts if any(name in text for name in names)]
    assert len(set(texts)) > 900


def test_what_the_experts_document_says_is_what_it_answers():
    taskset = lands()
    shown = [demonstrate(taskset, task) for task in tasks_of(taskset, "train")[:200]]
    with_document = [messages for messages in shown if "\n" in messages[0]["content"]]
    assert 60 < len(with_document) < 140
    assert all(messages[-1]["content"] in messages[0]["content"] for messages in with_document)
