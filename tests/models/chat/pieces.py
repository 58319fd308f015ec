"""Tiny tokenizers of several families, by what they do with spaces: some write one in front of every text."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from tests.tiny import SENTENCES, tiny_tokenizer

SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|user|>", "<|assistant|>", "<|end|>"]
SPECIAL += ["<start_of_turn>", "<end_of_turn>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
TEXTS = [
    *SENTENCES,
    "[INST] Paris is the answer [/INST]",
    "Paris. 42 A B",
    "the answer is Paris",
    "<answer>Paris</answer>",
]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def _bpe(normalizer: Any = None, pre_tokenizer: Any = None, strip: bool = True) -> Tokenizer:
    """A BPE tokenizer with byte fallback whose pieces are learnt from a few texts, as SentencePiece's are."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    decoder = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*decoder, decoders.Strip(" ", 1, 0)] if strip else decoder)
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=[*SPECIAL, *BYTES], show_progress=False)
    tokenizer.train_from_iterator([text for text in TEXTS for _ in range(3)], trainer)
    # The trainer takes the bytes for control tokens; in real tokenizers they are ordinary pieces.
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] not in BYTES]
    return Tokenizer.from_str(json.dumps(content))


def _unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    alphabet = [chr(code) for code in range(32, 127)] + ["\n"]
    trainer = trainers.UnigramTrainer(
        vocab_size=300, special_tokens=SPECIAL, unk_token="<unk>", initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([text for text in TEXTS for _ in range(3)], trainer)
    return tokenizer


REPLACE = normalizers.Replace(" ", "▁")
FAMILIES: dict[str, Callable[[], Tokenizer]] = {
    # As Llama 2's, Phi-3's and Zephyr's: the normalizer puts a space before every piece between control tokens.
    "prepend": partial(_bpe, normalizers.Sequence([normalizers.Prepend("▁"), REPLACE])),
    # As Mistral's and TinyLlama's of later versions: a space before the first piece alone.
    "metaspace-first": partial(_bpe, None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False)),
    # As T5's: words, each with a space before it, after control tokens too.
    "metaspace-always": partial(_bpe, None, pre_tokenizers.Metaspace(prepend_scheme="always", split=True)),
    # As T5's and XGLM's model: a space before every piece, and pieces by their probability.
    "unigram": _unigram,
    # As Gemma's: spaces are pieces, and none is put in front.
    "gemma": partial(_bpe, REPLACE, pre_tokenizers.Split(" ", "merged_with_previous"), strip=False),
}


def piece_tokenizer(family: str, template: str | dict[str, str]) -> PreTrainedTokenizerFast:
    """A tokenizer of one of `FAMILIES`, or `bytes`, with a chat template; control tokens are special."""
    if family == "bytes":
        wrapped = tiny_tokenizer()
        wrapped.add_special_tokens(
            {"additional_special_tokens": SPECIAL[1:], "bos_token": "<s>"}, replace_extra_special_tokens=False
        )
    else:
        wrapped = PreTrainedTokenizerFast(
            tokenizer_object=FAMILIES[family](),
            bos_token="<s>",
            unk_token="<unk>",
            additional_special_tokens=SPECIAL[3:],
            clean_up_tokenization_spaces=False,
        )
    wrapped.eos_token = "</s>"
    wrapped.chat_template = template
    return wrapped


def swallow_spaces(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """The tokenizer with control tokens that take the white space behind them, as Phi-3's do."""
    for name in ("<|user|>", "<|assistant|>", "<|end|>"):
        tokenizer.add_tokens([AddedToken(name, rstrip=True, special=True)], special_tokens=True)
    return tokenizer
