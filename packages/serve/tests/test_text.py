"""Text that grows token by token ends as the text of all tokens, and shows nothing that it takes back later."""

import itertools
import random
import string
from collections.abc import Sequence

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers
from transformers import PreTrainedTokenizerFast

from slimrl_serve.text import GrowingText, Vocabulary
from tests.tiny import tiny_tokenizer

TEXT = "Ünïcode: 你好, 🙂🙃! The quick brown fox \U0001f469\u200d\U0001f4bb jumps. "


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary(tiny_tokenizer(), 310)


@pytest.fixture(scope="module")
def falling_back() -> Vocabulary:
    """As those of Llama 2, Mistral and Gemma: what is no token becomes its bytes, each a token such as `<0xE2>`; a run
    of them is text only if all of it is."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", *string.ascii_letters]
    model = models.BPE({piece: index for index, piece in enumerate(pieces)}, [], unk_token="<unk>", byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", clean_up_tokenization_spaces=False
    )
    return Vocabulary(wrapped, len(pieces))


@pytest.fixture(params=["byte level", "byte fallback"])
def either(request: pytest.FixtureRequest, vocabulary: Vocabulary, falling_back: Vocabulary) -> Vocabulary:
    return vocabulary if request.param == "byte level" else falling_back


def grow(vocabulary: Vocabulary, token_ids: list[int], text: GrowingText, step: int = 1) -> list[str]:
    """The visible text after each step, and after closing."""
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


def test_characters_never_come_out_in_pieces(either: Vocabulary) -> None:
    token_ids = either.encode(TEXT, add_special=False)
    assert len(token_ids) > len(TEXT)
    seen = grow(either, token_ids, GrowingText(either.decode))
    assert seen[-1] == TEXT
    assert not any("\ufffd" in text for text in seen)


def test_every_character_of_a_long_run_of_bytes_comes_out_when_it_is_complete(falling_back: Vocabulary) -> None:
    text = "go " + "你🙂é" * 40 + " on"
    lengths = []

    def decode(token_ids: Sequence[int]) -> str:
        lengths.append(len(token_ids))
        return falling_back.decode(token_ids)

    seen = grow(falling_back, falling_back.encode(text, add_special=False), GrowingText(decode))
    assert list(dict.fromkeys(seen)) == [text[:end] for end in range(len(text) + 1)]
    assert max(lengths) <= 24


@pytest.mark.parametrize("seed", range(20))
def test_nothing_that_was_shown_of_a_run_of_bytes_is_taken_back(falling_back: Vocabulary, seed: int) -> None:
    rng = random.Random(seed)
    valid = falling_back.encode("🙂你é", add_special=False)
    token_ids: list[int] = []
    for _ in range(rng.randrange(1, 30)):
        token_ids += valid[: rng.randrange(len(valid) + 1)] + [rng.randrange(270)] * rng.randrange(2)
    seen = grow(falling_back, token_ids, GrowingText(falling_back.decode), step=rng.choice((1, 1, 3)))
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(seen))


@pytest.mark.parametrize("stop", [("fox",), ("o", "fox"), ("🙃",), ("🙂🙃! T", "nothing"), ("The quick", "quick")])
@pytest.mark.parametrize("include", [False, True])
def test_a_stop_string_ends_the_text_and_no_part_of_it_shows(
    either: Vocabulary, stop: tuple[str, ...], include: bool
) -> None:
    token_ids = either.encode(TEXT, add_special=False)
    text = GrowingText(either.decode, stop, include)
    num = next(n for n in range(1, len(token_ids)) if text.is_finished(token_ids[:n]))
    behind, start = min((TEXT.index(s) + len(s), TEXT.index(s)) for s in stop if s in TEXT)
    expected = TEXT[: behind if include else start]
    assert text.visible() == text.visible(closed=True) == expected
    assert either.decode(token_ids[: num - 1]).find(min(stop, key=TEXT.find)) < 0 or include
    watched = GrowingText(either.decode, stop, include)
    assert all(expected.startswith(seen) for seen in grow(either, token_ids, watched))


def test_the_texts_of_tokens_are_that_of_all(either: Vocabulary, vocabulary: Vocabulary) -> None:
    token_ids = either.encode("The quick brown fox", add_special=False)
    assert "".join(map(either.token_text, token_ids)).removeprefix(" ") == "The quick brown fox"
    assert vocabulary.token_text(305) == ""  # one that the tokenizer does not know


def test_marks_around_calls_are_shown_though_they_are_special() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["[CALL]"]}, replace_extra_special_tokens=False)
    mark = tokenizer.convert_tokens_to_ids("[CALL]")
    token_ids = [*tokenizer.encode("a[CALL]b", add_special_tokens=False), tokenizer.eos_token_id]
    vocabulary, plain = Vocabulary(tokenizer, 400, frozenset([mark])), Vocabulary(tokenizer, 400)
    assert (vocabulary.decode(token_ids), plain.decode(token_ids)) == ("a[CALL]b", "ab")
