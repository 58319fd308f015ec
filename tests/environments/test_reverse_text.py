"""reverse-text: its reward and its opening. `slimrl check` tests splits and demonstrations of every environment."""

import asyncio
import difflib

import pytest

from slimrl.environments.find import load_taskset
from slimrl.types import Task, Turn

TASKSET = load_taskset("reverse-text", {})
TASK = TASKSET.tasks("test")[0]
DEMONSTRATION = TASKSET.scripts["expert"](TASK, 0)
TARGET = DEMONSTRATION[-1]["content"].removeprefix("<reversed_text>").removesuffix("</reversed_text>")
RIGHT, WRONG = f"<reversed_text>{TARGET}</reversed_text>", "<reversed_text>@@@</reversed_text>"


def answered(reply: str, task: Task = TASK) -> Turn:
    async def play() -> Turn:
        environment = TASKSET.environment(task)
        await environment.start()
        return await environment.step(reply)

    turn = asyncio.run(play())
    assert turn.done
    return turn


def test_the_opening_shows_the_text_and_not_the_answer():
    opening = asyncio.run(TASKSET.environment(TASK).start())
    text = "\n".join(message["content"] for message in opening)
    assert TARGET[::-1] in text and TARGET not in text
    assert opening[-1]["role"] == "user" and DEMONSTRATION[:-1] == opening


EARNED = {
    **dict.fromkeys([RIGHT, f"{RIGHT} {WRONG}", f"Sure:\n<reversed_text>\n  {TARGET}  \n</reversed_text> Done."], 1.0),
    **dict.fromkeys(["", TARGET, f"<reversed_text>{TARGET}", f"{TARGET}</reversed_text>", f"<b>{TARGET}</b>"], 0.0),
    **{f"<reversed_text>{given}</reversed_text>": 0.0 for given in ("", "   ", "\n", "@@@@")},
    f"{WRONG} {RIGHT}": 0.0,
}


@pytest.mark.parametrize("reply", EARNED)
def test_the_first_answer_in_tags_counts_without_the_space_around_it(reply: str):
    turn = answered(reply)
    assert turn.reward == turn.metrics["exact"] == EARNED[reply]


@pytest.mark.parametrize("given", [TARGET[:-1], TARGET[1:] + TARGET[0], "x" + TARGET, TARGET[::-1], TARGET[:3]])
def test_a_partly_right_answer_earns_its_similarity(given: str):
    turn = answered(f"<reversed_text>{given}</reversed_text>")
    assert turn.reward == difflib.SequenceMatcher(None, given.strip(), TARGET).ratio()
    assert 0.0 < turn.reward < 1.0 and turn.metrics["exact"] == 0.0
    if given == TARGET[:3]:  # by hand: twice the letters in common, of all letters
        assert turn.reward == pytest.approx(2 * 3 / (3 + len(TARGET)))


def test_a_long_text_is_compared_letter_by_letter():
    # difflib's shortcut for 200 characters and more would take common letters for junk and find no match at all
    text = "abcdefgh" * 40
    assert answered(f"<reversed_text>{text[::-1]}</reversed_text>", Task("long", {"text": text})).reward == 1.0
    assert answered(f"<reversed_text>{text[::-1][1:]}</reversed_text>", Task("long", {"text": text})).reward > 0.99
