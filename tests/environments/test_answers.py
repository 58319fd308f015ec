"""Answers are read in the form that was asked for, and leniently without picking among candidates. A number keeps its
sign, its point and its unit, or is none.

The replies are in `answers.jsonl`, each with the answer that is read leniently, or null.
"""

import json
from pathlib import Path

import pytest

from slimrl.environments.answers import MAX_CHARS, Number, read_answer, read_number

REPLIES = [
    json.loads(line) for line in Path(__file__).with_name("answers.jsonl").read_text("utf-8").split("\n") if line
]
LONG = {
    "all numbers": " ".join(map(str, range(500))),
    "very long": "1 + 5 = 6 " + "x" * MAX_CHARS,
    "an answer that is very long": "Answer: " + "6" * 1000,
}


@pytest.mark.parametrize("one", REPLIES, ids=lambda one: one["kind"])
def test_an_answer_is_read_leniently_or_not_at_all(one: dict[str, str | None]) -> None:
    reply = one["reply"]
    found = read_answer(reply)
    assert found.text == one["answer"]
    has_tags = "<answer>" in reply and "</answer>" in reply
    assert found.is_strict == has_tags
    if not has_tags:
        assert read_answer(reply, "tag").text is None


@pytest.mark.parametrize("reply", LONG.values(), ids=LONG)
def test_nothing_is_picked_from_a_long_reply(reply: str) -> None:
    assert read_answer(reply).text is None


def test_other_forms_are_read_as_they_stand():
    assert read_answer("<answer>6, 7, 8</answer>").text == "6, 7, 8"  # which equals no right answer
    assert read_answer("I add.\n 6 \n", "whole").text == "I add.\n 6"
    assert read_answer("\n", "whole").text is None


USELESS = {
    **{
        "dollars": "$" * 20000,
        "roots": "\\sqrt[" * 3000,
        "braces": "\\boxed{" + "{a}" * 6000,
        "tags": "<answer>" * 3000,
    },
    **{"boxes": "\\boxed{6} \\boxed{7}" * 1000, "open boxes": "\\boxed{" * 3000, "signs": "a = b, c = " + "- " * 9000},
    **{"equals": "=" * 5000, "labels": "answer is " * 3000, "ones": "1=" * 9000, "points": "1.2.3e4"},
}


@pytest.mark.parametrize("reply", USELESS.values(), ids=USELESS)
def test_useless_replies_take_no_time(reply: str) -> None:
    assert read_answer(reply).text in (None, "1", "1.2.3e4")


SAME = "6=6.0 1,000=1000 1/2=0.5 -3=-3.00 +7=7 50%=50% 6.=6 .5=0.5 -.5=-1/2 +.25=1/4 \u22125=-5 $5=5 -$5=$-5 €5=5"
SAME += " $1,000.50=$1000.5 £.5=£0.50 .5%=0.5% 50%.=50% 1/2.=0.5"
OTHER = ".5=5 -.5=.5 -5=5 €5=$5 £5=¥5 5%=5 $5=5% 1/2=2 $-5=$5 1.000=1,000"
NO_NUMBERS = [
    *["", "six", "6 or 7", "not 6", "6 7", "1,00", "1e5", "٦", "1/0", "9" * 100, "--6", "5!", "$5%", "$€5", "-$-5"],
    *["1.5/2", ".", "-", "$", "%", "5 %", "0x5", "5²", "½", "1_000", "nan", "inf", "-.", "./2", "1,0000"],
]


def numbers_in(pair: str) -> tuple[Number, Number]:
    one, other = map(read_number, pair.split("="))
    assert one is not None and other is not None
    return one, other


@pytest.mark.parametrize("pair", [*SAME.split(), *OTHER.split()])
def test_a_sign_a_point_and_a_unit_make_another_number_and_nothing_else_does(pair: str) -> None:
    one, other = numbers_in(pair)
    assert one.equals(other) == other.equals(one) == (pair in SAME.split())


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_anything_else_is_no_number(text: str) -> None:
    assert read_number(text) is None
