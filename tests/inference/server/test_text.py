"""Text that grows token by token is the text of all tokens, and shows nothing that it would take back."""

import itertools
import random

import pytest

from slimrl.inference.server.text import GrowingText, Vocabulary, held_back
from tests.tiny import tiny_tokenizer

TEXT = "Ünïcode: 你好, 🙂🙃! The quick brown fox \U0001f469\u200d\U0001f4bb jumps. "


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary(tiny_tokenizer(), 310)


def grow(vocabulary: Vocabulary, token_ids: list[int], text: GrowingText, step: int = 1) -> list[str]:
    """What is visible after each step, the last when closed."""
    seen = []
    for end in range(step, len(token_ids) + step, step):
        text.grow(token_ids[:end])
        seen.append(text.visible())
    text.grow(token_ids, closed=True)
    return [*seen, text.visible(closed=True)]


@pytest.mark.parametrize("seed", range(20))
def test_growing_text_ends_as_the_text_of_all_tokens_whatever_the_tokens(vocabulary: Vocabulary, seed: int) -> None:
    rng = random.Random(seed)
    token_ids = [rng.randrange(300) for _ in range(rng.randrange(1, 120))]  # mostly no valid text at all
    seen = grow(vocabulary, token_ids, GrowingText(vocabulary.decode), step=rng.choice((1, 1, 2, 7)))
    assert seen[-1] == vocabulary.decode(token_ids)
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(seen))


def test_characters_never_come_out_in_pieces(vocabulary: Vocabulary) -> None:
    token_ids = vocabulary.encode(TEXT, add_special=False)
    assert len(token_ids) > len(TEXT)
    seen = grow(vocabulary, token_ids, GrowingText(vocabulary.decode))
    assert seen[-1] == TEXT
    assert not any("\ufffd" in text for text in seen)


@pytest.mark.parametrize("stop", [("fox",), ("o", "fox"), ("🙃",), ("🙂🙃! T", "nothing"), ("The quick", "quick")])
@pytest.mark.parametrize("include", [False, True])
def test_a_stop_string_ends_the_text_and_no_part_of_it_shows(
    vocabulary: Vocabulary, stop: tuple[str, ...], include: bool
) -> None:
    token_ids = vocabulary.encode(TEXT, add_special=False)
    text = GrowingText(vocabulary.decode, stop, include)
    num = next(n for n in range(1, len(token_ids)) if text.finished(token_ids[:n]))
    behind, start = min((TEXT.index(s) + len(s), TEXT.index(s)) for s in stop if s in TEXT)
    expected = TEXT[: behind if include else start]
    assert text.visible() == text.visible(closed=True) == expected
    assert vocabulary.decode(token_ids[: num - 1]).find(min(stop, key=TEXT.find)) < 0 or include
    watched = GrowingText(vocabulary.decode, stop, include)
    assert all(expected.startswith(seen) for seen in grow(vocabulary, token_ids, watched))


def test_no_stop_string_is_complete_before_the_fewest_tokens(vocabulary: Vocabulary) -> None:
    token_ids = vocabulary.encode("aXbXcXd", add_special=False)
    text = GrowingText(vocabulary.decode, ("X",), min_tokens=len(token_ids) - 1)
    assert [text.finished(token_ids[:n]) for n in range(1, len(token_ids) + 1)].index(True) == len(token_ids) - 2
    assert text.visible() == "aXbXc"


def test_the_bytes_of_tokens_are_those_of_the_text(vocabulary: Vocabulary) -> None:
    token_ids = vocabulary.encode(TEXT, add_special=False)
    assert b"".join(map(vocabulary.token_bytes, token_ids)).decode() == TEXT
    for token in token_ids:
        text = vocabulary.token_text(token)
        assert text.startswith("bytes:\\x") or text.encode() == vocabulary.token_bytes(token)


def test_tokens_that_the_tokenizer_does_not_know_are_empty(vocabulary: Vocabulary) -> None:
    assert (vocabulary.token_text(305), vocabulary.token_bytes(305)) == ("", b"")


def test_held_back_is_the_longest_beginning_of_a_mark() -> None:
    assert held_back("abc", ["cd", "bcd"]) == 2
    assert held_back("abc", ["x", "abcd"]) == 3
    assert held_back("abc", ["abc"]) == 0
    assert held_back("", ["abc"]) == 0
