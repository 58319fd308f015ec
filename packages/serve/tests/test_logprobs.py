"""Text offsets say where tokens begin in the text."""

import httpx
import pytest

from slimrl_serve.logprobs import TextOffsets
from slimrl_serve.text import Vocabulary
from tests.tiny import END, tiny_tokenizer

TEXT = "Ünïcode: 你好, 🙂🙃! The quick brown fox"


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary(tiny_tokenizer(), 300)


@pytest.mark.parametrize("step", [1, 5, 1000])
def test_tokens_begin_where_their_text_does(vocabulary: Vocabulary, step: int) -> None:
    token_ids = vocabulary.encode(TEXT, add_special=False)
    counted = TextOffsets(vocabulary.decode, 3, before=[0, 1])
    offsets = [offset for at in range(0, len(token_ids), step) for offset in counted.take(token_ids[at : at + step])]
    assert offsets[:2] == [0, 1]
    assert len(offsets) == len(token_ids) + 2
    assert offsets == sorted(offsets)
    whole = f"...{TEXT}"
    for token, offset in zip(token_ids, offsets[2:], strict=True):
        name = vocabulary.token_text(token)
        assert name.startswith("bytes:") or whole[offset:].startswith(name)


def test_a_special_token_that_is_left_out_has_no_length(vocabulary: Vocabulary) -> None:
    (end,) = vocabulary.encode(END, add_special=False)
    a, b = vocabulary.encode("a", add_special=False), vocabulary.encode("b", add_special=False)
    assert TextOffsets(vocabulary.decode, 0).take([*a, end, *b]) == [0, 1, 1]
    assert TextOffsets(vocabulary.decoder(skip_special=False), 0).take([*a, end, *b]) == [0, 1, 1 + len(END)]


@pytest.mark.parametrize("skips", [True, False])
def test_an_echoed_text_is_pointed_into(http: httpx.Client, vocabulary: Vocabulary, skips: bool) -> None:
    prompt = f"{TEXT}{END}then"
    for given in (prompt, vocabulary.encode(prompt, add_special=False)):
        body = {"prompt": given, "echo": True, "max_tokens": 0, "logprobs": 0, "skip_special_tokens": skips}
        (choice,) = http.post("/v1/completions", json=body).json()["choices"]
        assert choice["text"] == (prompt if given is prompt or not skips else prompt.replace(END, ""))
        for name, offset in zip(choice["logprobs"]["tokens"], choice["logprobs"]["text_offset"], strict=True):
            left_out = name == END and END not in choice["text"]
            assert name.startswith("bytes:") or left_out or choice["text"][offset:].startswith(name)
