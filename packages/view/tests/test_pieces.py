import random

import pytest

from slimrl.errors import UserError
from slimrl.models.gguf_header import read_header
from slimrl.models.gguf_tokenizer import build_tokenizer
from slimrl.models.names import find_packaged_file
from slimrl_view.detail import Pieces, find_tokenizer
from tests.tiny import tiny_tokenizer

pytestmark = pytest.mark.slow

TEXTS = (
    "plain words, and  spaces\n\n\ttabs",
    "emoji 👩‍👩‍👧‍👦 🏳️‍🌈 🙂 in the middle",
    "中文字符和日本語、한국어",
    "<|im_start|>user\nwhat?<|im_end|>\n<|im_start|>assistant\n中🙂<|im_end|>",
    "مرحبا \u202eright to left\u202c \u200b\u2066 zero width",
    "\x00\x07\x1b[2J control",
    "é é ﬁ ½",
)


@pytest.fixture(scope="module")
def packaged(tmp_path_factory):
    """The tokenizer of the packaged SmolLM2: as transformers has it, and its file."""
    tokenizer = build_tokenizer(read_header(find_packaged_file("smollm2-135m")).metadata)
    directory = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save_pretrained(directory)
    return tokenizer, directory / "tokenizer.json"


@pytest.mark.parametrize("text", TEXTS)
def test_the_pieces_of_a_real_tokenizer_are_its_text(packaged, text):
    tokenizer, path = packaged
    ids = tokenizer.encode(text)
    pieces = Pieces(path).split(ids)
    assert len(pieces) == len(ids)
    assert "".join(pieces) == tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


def test_a_character_of_several_tokens_goes_to_the_last(packaged):
    tokenizer, path = packaged
    ids = tokenizer.encode("a🏴b")
    pieces = Pieces(path).split(ids)
    assert len(ids) > 3
    assert pieces == ["a", *[""] * (len(ids) - 3), "🏴", "b"]


def test_any_tokens_in_any_order_are_the_text_that_the_library_makes(packaged):
    tokenizer, path = packaged
    rng, pieces = random.Random(0), Pieces(path)
    some = [token for text in TEXTS for token in tokenizer.encode(text)]  # many of them parts of characters
    for _ in range(300):
        ids = [rng.choice(some) if rng.random() < 0.8 else rng.randrange(len(tokenizer)) for _ in range(40)]
        assert "".join(pieces.split(ids)) == tokenizer.decode(ids, clean_up_tokenization_spaces=False)


def test_ids_without_a_token_have_empty_pieces(packaged):
    tokenizer, path = packaged
    assert Pieces(path).split([*tokenizer.encode("a"), 10**6, *tokenizer.encode("b")]) == ["a", "", "b"]
    assert Pieces(path).split([]) == []


def test_the_tokenizer_of_a_run_is_its_own_or_that_of_its_newest_weights(tmp_path):
    assert find_tokenizer(tmp_path) is None
    for name in ("weights/step_9", "weights/step_10", "weights/best"):
        tiny_tokenizer().save_pretrained(tmp_path / name)
    assert find_tokenizer(tmp_path) == tmp_path / "weights" / "step_10" / "tokenizer.json"
    tiny_tokenizer().save_pretrained(tmp_path / "tokenizer")
    assert find_tokenizer(tmp_path) == tmp_path / "tokenizer" / "tokenizer.json"


@pytest.mark.parametrize("content", ["", "{}", "[1, 2]", '{"model": {"type": "BPE"}}', "\x00" * 100])
def test_a_file_that_is_no_tokenizer_is_named(tmp_path, content):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(UserError, match="cannot be read as a tokenizer"):
        Pieces(tmp_path / "tokenizer.json")
