"""Text offsets say where tokens begin in the text."""

import httpx
import pytest

from slimrl_serve.text import Vocabulary
from tests.tiny import END, tiny_tokenizer

TEXT = "Ünïcode: 你好, 🙂🙃! The quick brown fox"


@pytest.mark.parametrize("skips", [True, False])
def test_an_echoed_text_is_pointed_into(http: httpx.Client, skips: bool) -> None:
    prompt = f"{TEXT}{END}then"
    for given in (prompt, Vocabulary(tiny_tokenizer(), 300).encode(prompt, add_special=False)):
        body = {"prompt": given, "echo": True, "max_tokens": 0, "logprobs": 0, "skip_special_tokens": skips}
        (choice,) = http.post("/v1/completions", json=body).json()["choices"]
        assert choice["text"] == (prompt if given is prompt or not skips else prompt.replace(END, ""))
        offsets = choice["logprobs"]["text_offset"]
        assert offsets == sorted(offsets) and offsets[0] == 0
        for name, offset in zip(choice["logprobs"]["tokens"], offsets, strict=True):
            left_out = name == END and END not in choice["text"]
            assert name.startswith("bytes:") or left_out or choice["text"][offset:].startswith(name)
