"""What can be said of a text that is not whole yet."""

from time import thread_time

import pytest

from slimrl.io.text import partial_mark_length, spans_between


def test_held_back_is_the_longest_beginning_of_a_mark() -> None:
    cases = {("abc", "cd bcd"): 2, ("abc", "x abcd"): 3, ("abc", "abc"): 0, ("", "abc"): 0}
    assert {case: partial_mark_length(case[0], case[1].split()) for case in cases} == cases


@pytest.mark.parametrize("text", ["<a>" * 50_000, "<a>" * 50_000 + "</b>", "<a>x</a>" * 20_000, "</a>" * 50_000])
def test_marks_without_end_are_searched_in_linear_time(text):
    began = thread_time()
    num = sum(1 for _ in spans_between(text, "<a>", "</a>"))
    assert num == text.count("<a>x</a>") and thread_time() - began < 1  # 20 ms; a minute where it is quadratic
