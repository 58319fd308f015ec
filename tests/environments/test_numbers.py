"""A number keeps its sign, its point and its unit, or is none."""

import pytest

from slimrl.environments.numbers import read_number


def number(text):
    found = read_number(text)
    assert found is not None, text
    return found


@pytest.mark.parametrize(
    ("text", "same"),
    [
        *[("6", "6.0"), ("1,000", "1000"), ("1/2", "0.5"), ("-3", "-3.00"), ("+7", "7"), ("50%", "50%"), ("6.", "6")],
        *[(".5", "0.5"), ("-.5", "-1/2"), ("+.25", "1/4"), ("\u22125", "-5"), ("$5", "5"), ("-$5", "$-5"), ("€5", "5")],
        *[("$1,000.50", "$1000.5"), ("£.5", "£0.50"), (".5%", "0.5%"), ("50%.", "50%"), ("1/2.", "0.5")],
    ],
)
def test_numbers_are_equal_however_they_are_written(text, same):
    assert number(text).equals(number(same)) and number(same).equals(number(text))


@pytest.mark.parametrize(
    ("text", "other"),
    [
        *[(".5", "5"), ("-.5", ".5"), ("-5", "5"), ("€5", "$5"), ("£5", "¥5"), ("5%", "5"), ("$5", "5%")],
        *[("1/2", "2"), ("$-5", "$5"), ("1.000", "1,000")],
    ],
)
def test_a_sign_a_point_and_a_unit_make_another_number(text, other):
    assert not number(text).equals(number(other)) and not number(other).equals(number(text))


@pytest.mark.parametrize(
    "text",
    [
        *["", "six", "6 or 7", "not 6", "6 7", "1,00", "1e5", "٦", "1/0", "9" * 100, "--6", "5!", "$5%", "$€5", "-$-5"],
        *["1.5/2", ".", "-", "$", "%", "5 %", "0x5", "5²", "½", "1_000", "nan", "inf", "-.", "./2", "1,0000"],
    ],
)
def test_anything_else_is_no_number(text):
    assert read_number(text) is None
