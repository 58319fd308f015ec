"""GGUF files become models that plain transformers loads: same weights, same token ids; damaged ones are refused."""

import random
from itertools import pairwise
from pathlib import Path

import pytest
import regex
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from slimrl.errors import UserError
from slimrl.models.gguf import convert
from slimrl.models.gguf_header import read_header
from slimrl.models.names import find_packaged_file
from slimrl.models.resolve import resolve
from tests.models.gguf_files import write_gguf
from tests.tiny import tiny_module, tiny_tokenizer

TEXTS = (
    "Hello world! 123",
    "  two  spaces, 3 4567.89\n\n\ttabs\r\n",
    "Café déjà vu — naïve ﬁancée, 漢字かな交じり文 한국어 🎉👩‍👩‍👧",
    "½ ² ٣٤ १२३ ４５",
    "don't we'll I'VE 'tis",
    "<|im_start|>user\nreverse: abc<|im_end|>\n<|im_start|>assistant\n",
    "<reversed_text>cba</reversed_text>",
    "",
)


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLIMRL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def original() -> LlamaForCausalLM:
    return tiny_module("llama")


@pytest.fixture(scope="module")
def whole_file(tmp_path_factory: pytest.TempPathFactory, original: LlamaForCausalLM) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", original, tiny_tokenizer())


def logits(module: torch.nn.Module) -> torch.Tensor:
    with torch.inference_mode():
        return module(torch.arange(3, 40)[None]).logits[0]


@pytest.mark.usefixtures("empty_cache")
def test_unquantised_file_keeps_every_bit_and_is_converted_once(
    whole_file: Path, original: LlamaForCausalLM, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = convert(whole_file)
    assert "Converting tiny.gguf" in capsys.readouterr().err
    assert convert(whole_file) == directory and capsys.readouterr().err == ""
    module = AutoModelForCausalLM.from_pretrained(directory)
    assert module.dtype == torch.float32
    assert torch.equal(logits(module), logits(original))
    assert module.generation_config.eos_token_id == 2
    before, after = tiny_tokenizer(), AutoTokenizer.from_pretrained(directory)
    assert [after.encode(text) for text in TEXTS] == [before.encode(text) for text in TEXTS]
    for name in ("chat_template", "eos_token", "bos_token", "pad_token"):
        assert getattr(after, name) == getattr(before, name)


def test_file_cut_anywhere_is_refused(whole_file: Path, tmp_path: Path, empty_cache: Path) -> None:
    content = whole_file.read_bytes()
    rng = random.Random(0)
    cuts = [0, 3, 4, 10, 24, 100, len(content) - 1, *(rng.randrange(len(content)) for _ in range(20))]
    garbage = [b"GGUF" + version.to_bytes(4, "little") + rng.randbytes(10_000) for version in (3, 2**31)]
    pointer = b"version https://git-lfs.github.com/spec/v1\n"
    for damaged in (*(content[:cut] for cut in cuts), *garbage, pointer):
        path = tmp_path / "cut.gguf"
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"cut off or damaged|not a GGUF file.*Git LFS pointer"):
            convert(path)
    assert not [path for path in empty_cache.glob("models/*") if path.is_dir()]


def naive_ids(path: Path, texts: tuple[str, ...]) -> list[list[int]]:
    """llama.cpp's algorithm for `smollm` on the file's own vocabulary and merges, written as plainly as possible."""
    metadata = read_header(path).metadata
    vocabulary = {token: index for index, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    ranks = {merge: rank for rank, merge in enumerate(metadata["tokenizer.ggml.merges"])}
    control = [token for token, index in vocabulary.items() if index < 17]
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    rest = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + index) for index, byte in enumerate(rest)}

    def merge(word: str) -> list[str]:
        symbols = [letters[byte] for byte in word.encode()]
        while True:
            pairs = [(ranks.get(f"{a} {b}", 10**9), i) for i, (a, b) in enumerate(pairwise(symbols))]
            rank, index = min(pairs, default=(10**9, 0))
            if rank == 10**9:
                return symbols
            symbols[index : index + 2] = ["".join(symbols[index : index + 2])]

    def encode(text: str) -> list[int]:
        ids: list[int] = []
        for part in regex.split("(" + "|".join(map(regex.escape, control)) + ")", text):
            if part in control:
                ids.append(vocabulary[part])
                continue
            for piece in regex.findall(r"\p{N}|[^\p{N}]+", part):
                pattern = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
                ids += [vocabulary[symbol] for word in regex.findall(pattern, piece) for symbol in merge(word)]
        return ids

    return [encode(text) for text in texts]


@pytest.mark.slow
def test_packaged_model_is_converted_faithfully() -> None:
    directory = resolve("smollm2-135m")
    tokenizer = AutoTokenizer.from_pretrained(directory)
    rng = random.Random(0)
    texts = TEXTS + tuple("".join(rng.choices("abc XYZ019\n\t.,'²½éß漢🎉٣१<|>_", k=30)) for _ in range(200))
    assert [tokenizer.encode(text) for text in texts] == naive_ids(find_packaged_file("smollm2-135m"), texts)
    assert [tokenizer.decode(tokenizer.encode(text)) for text in texts] == list(texts)
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|im_end|>")
    module = AutoModelForCausalLM.from_pretrained(directory)
    assert module.get_output_embeddings().weight is module.get_input_embeddings().weight
    assert module.generation_config.eos_token_id == tokenizer.eos_token_id
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}], add_generation_prompt=True, return_tensors="pt"
    )
    output = module.generate(**prompt, max_new_tokens=12, do_sample=False)
    assert tokenizer.decode(output[0, prompt["input_ids"].shape[1] :]) == "The capital of France is Paris.<|im_end|>"
