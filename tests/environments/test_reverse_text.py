"""reverse-text: its splits, its reward, its demonstrations."""

import asyncio
import difflib

import pytest

from slimrl.environments.find import load_taskset
from slimrl.types import Task, Turn

TASKSET = load_taskset("reverse-text", {})


def wanted(task) -> str:
    """The true reversal, as the demonstration has it."""
    return (
        TASKSET.scripts["expert"](task, 0)[-1]["content"]
        .removeprefix("<reversed_text>")
        .removesuffix("</reversed_text>")
    )


def answered(task, reply: str) -> Turn:
    async def play() -> Turn:
        environment = TASKSET.environment(task)
        await environment.start()
        return await environment.step(reply)

    turn = asyncio.run(play())
    assert turn.done
    return turn


TASK = TASKSET.tasks("test")[0]
TARGET = wanted(TASK)


def test_the_splits_share_no_text():
    tasks = {split: TASKSET.tasks(split) for split in ("train", "test")}
    train, test = ({wanted(task) for task in tasks[split]} for split in tasks)
    assert len(train) == len(tasks["train"])  # nor does a split hold a text twice
    assert len(test) == len(tasks["test"]) >= 200
    assert not train & test
    ids = [task.id for split in tasks for task in tasks[split]]
    assert len(set(ids)) == len(ids)


def test_tasks_are_the_same_every_time():
    again = load_taskset("reverse-text", {})
    assert list(again.tasks("test")) == list(TASKSET.tasks("test"))


def test_the_opening_shows_the_text_and_not_the_answer():
    opening = asyncio.run(TASKSET.environment(TASK).start())
    text = "\n".join(message["content"] for message in opening)
    assert TARGET[::-1] in text
    assert TARGET not in text
    assert opening[-1]["role"] == "user"
    assert TASKSET.scripts["expert"](TASK, 0)[:-1] == opening


def test_a_demonstration_earns_everything():
    for task in TASKSET.tasks("train")[:50]:
        turn = answered(task, TASKSET.scripts["expert"](task, 0)[-1]["content"])
        assert turn.reward == 1.0
        assert turn.metrics["exact"] == 1.0


@pytest.mark.parametrize("template", ["{}", "", "<reversed_text>{}", "{}</reversed_text>", "<b>{}</b>"])
def test_an_answer_without_tags_earns_nothing(template):
    turn = answered(TASK, template.format(TARGET))
    assert turn.reward == 0.0
    assert turn.metrics["exact"] == 0.0


def test_a_partly_right_answer_earns_its_similarity():
    for given in (TARGET[:-1], TARGET[1:] + TARGET[0], "x" + TARGET, TARGET[::-1]):
        turn = answered(TASK, f"<reversed_text>{given}</reversed_text>")
        assert turn.reward == difflib.SequenceMatcher(None, given.strip(), TARGET).ratio()
        assert 0.0 < turn.reward < 1.0
        assert turn.metrics["exact"] == 0.0


def test_similarity_by_hand():
    # 2 x matching characters / all characters: the half of the target against the whole
    half = TARGET[: len(TARGET) // 2].strip()
    turn = answered(TASK, f"<reversed_text>{half}</reversed_text>")
    assert turn.reward == pytest.approx(2 * len(half) / (len(half) + len(TARGET)))


def test_a_long_text_is_compared_letter_by_letter():
    # difflib's shortcut for 200 characters and more would take common letters for junk and find no match at all
    text = "abcdefgh" * 40
    assert answered(Task("long", {"text": text}), f"<reversed_text>{text[::-1]}</reversed_text>").reward == 1.0
    assert answered(Task("long", {"text": text}), f"<reversed_text>{text[::-1][1:]}</reversed_text>").reward > 0.99


@pytest.mark.parametrize("given", ["", "   ", "\n", "@@@@"])
def test_a_wholly_wrong_answer_earns_nothing(given):
    assert answered(TASK, f"<reversed_text>{given}</reversed_text>").reward == 0.0


def test_the_first_of_several_answers_counts():
    right, wrong = f"<reversed_text>{TARGET}</reversed_text>", "<reversed_text>@@@</reversed_text>"
    assert answered(TASK, f"{right} {wrong}").reward == 1.0
    assert answered(TASK, f"{wrong} {right}").reward == 0.0


def test_talk_around_the_tags_and_white_space_inside_them_cost_nothing():
    assert answered(TASK, f"Sure:\n<reversed_text>\n  {TARGET}  \n</reversed_text> Done.").reward == 1.0
