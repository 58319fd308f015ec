"""What can be said of a text that is not whole yet."""

from time import thread_time

import pytest

from slimrl.io.text import is_writable, partial_mark_length, spans_between


def test_held_back_is_the_longest_beginning_of_a_mark() -> None:
    assert partial_mark_length("abc", ["cd", "bcd"]) == 2
    assert partial_mark_length("abc", ["x", "abcd"]) == 3
    assert partial_mark_length("abc", ["abc"]) == 0
    assert partial_mark_length("", ["abc"]) == 0


def test_half_of_a_surrogate_pair_cannot_be_written() -> None:
    assert is_writable({"a": ["\u05e9 \U0001f642", 1, None]})
    assert not is_writable({"a": ["\ud83d"]})


@pytest.mark.parametrize("text", ["<a>" * 50_000, "<a>" * 50_000 + "</b>", "<a>x</a>" * 20_000, "</a>" * 50_000])
def test_marks_without_end_are_searched_in_linear_time(text):
    began = thread_time()
    num = sum(1 for _ in spans_between(text, "<a>", "</a>"))
    assert num == text.count("<a>x</a>") and thread_time() - began < 1  # 20 ms; a minute where it is quadratic
