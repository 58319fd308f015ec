"""Texts are cut to a number of tokens; here a word is a token."""

import pytest

from slimrl.models.chat.excerpt import shorten


def words(text: str) -> int:
    return len(text.split())


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 10, 99, 100])
def test_no_more_than_the_tokens_is_kept(max_tokens: int) -> None:
    text = "one two. " * 50
    kept, _, note = shorten(text, max_tokens, words).rpartition("\n")
    if max_tokens == 100:
        assert note == text
    else:
        assert text.startswith(kept) and max_tokens // 2 <= words(kept) <= max_tokens
        assert note.startswith("[") and note.endswith(" more characters were left out]")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('He said so. "Really?" Then he went on and on', '"Really?"'),
        ("A line of five words\nand another of six whole words", "words"),
        ("\u05d0 \u05d1 \u05d2. \u05d3 \u05d4 \u05d5 \u05d6", "\u05d2."),
        ("[{'page_id': 'a', 'title': 'A'}, {'page_id': 'b', 'title': 'B'}]", "}, "),
    ],
)
def test_it_is_cut_behind_something_whole(text: str, kept: str) -> None:
    assert shorten(text, 5, words).rsplit("\n", 1)[0].endswith(kept.rstrip())


def test_only_a_little_of_a_long_text_is_looked_at() -> None:
    seen: list[int] = []

    def count(text: str) -> int:
        seen.append(len(text))
        return words(text)

    text = "word " * 1_000_000
    cut = shorten(text, 100, count)
    assert words(cut) < 110 and max(seen) < 2000 and len(seen) < 30


@pytest.mark.parametrize("fox", ["", "x", "\U0001f98a" * 30, "\U0001f98a" * 100])
def test_a_text_that_fits_stays_and_one_without_any_break_is_cut_where_it_must_be(fox: str) -> None:
    text = shorten(fox, 200, lambda text: len(text.encode()))
    assert text == (fox if len(fox) < 100 else "\U0001f98a" * 50 + "\n[50 more characters were left out]")
