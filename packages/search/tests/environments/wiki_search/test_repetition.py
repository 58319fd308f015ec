"""Signs of a degrading text, with numbers worked out by hand."""

import pytest

from slimrl_search.wiki_search.repetition import repeats, repetition


@pytest.mark.parametrize(
    ("replies", "share"),
    [
        ([], 0.0),
        (["", "one two three"], 0.0),
        (["one two three four five"], 0.0),
        (["a b c d a b c d"], 1 / 5),
        (["a b c d", "a b c d"], 0.0),  # ids come again in the next call, and rightly
        (["x " * 103], 99 / 100),
    ],
)
def test_repetition_is_the_share_of_runs_of_words_seen_before(replies: list[str], share: float) -> None:
    assert repetition(replies) == pytest.approx(share)


def test_repeats_are_what_was_there_before() -> None:
    assert repeats([]) == repeats([1, 2, 3]) == 0
    assert repeats([("f", "x"), ("f", "y"), ("f", "x"), ("f", "x")]) == 2
