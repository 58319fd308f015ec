"""Builds the tokenizer of a GGUF file: transformers' own, mended where the file says what transformers passes over.

Raises ValueError for what would split text otherwise than llama.cpp does.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS
from transformers.integrations.gguf.reader import read_gguf_metadata

# `tokenizer.ggml.pre` names the pre-tokenizer, which splits text before BPE merges. transformers knows some values and
# treats all others as GPT-2's. These split off every digit first (llama.cpp, `llm_tokenizer_bpe`) ...
SINGLE_DIGITS = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"})
# ... and for these GPT-2's is right. Any other would be split wrongly without a warning, so it is refused.
PLAIN_GPT2 = frozenset({"gpt-2", "phi-2", "mpt", "olmo", "jais", "exaone4", "trillion", "granite-docling"})
# These take a word that is a token as it stands, without merges, and begin with the BOS token unless the file says no.
LIKE_LLAMA3 = frozenset(
    {"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "tekken"}
)

TEMPLATE = "tokenizer.chat_template"
# Keys behind `tokenizer.` that are read here or by transformers, or that change nothing.
KNOWN = frozenset(
    {
        "chat_template",
        "chat_templates",
        "huggingface.json",
        *(f"ggml.{key}" for key in ("model", "pre", "tokens", "token_type", "token_type_count", "scores", "merges")),
        *(f"ggml.{key}" for key in ("add_bos_token", "add_eos_token", "add_sep_token", "add_space_prefix")),
    }
)
# What ends a reply: the end of the text, of a turn, and of a message.
STOPS = ("eos", "eot", "eom")


def gguf_tokenizer(path: Path) -> Any:
    """The tokenizer of a `.gguf` file, with its chat templates."""
    metadata, _ = read_gguf_metadata(str(path), ("tokenizer.chat_templates",))
    _refuse_unknown(metadata)
    # Not AutoTokenizer: the result is the same, but it reads the whole file once more to name the architecture.
    tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(path.parent, gguf_file=path.name, trust_remote_code=False)
    match metadata.get("tokenizer.ggml.model"):
        case "gpt2":
            _mend_bpe(tokenizer, metadata)
        case "llama":
            _mend_sentencepiece(tokenizer, metadata)
    if names := metadata.get("tokenizer.chat_templates"):
        named = {name: metadata[f"{TEMPLATE}.{name}"] for name in names if f"{TEMPLATE}.{name}" in metadata}
        tokenizer.chat_template = ({"default": metadata[TEMPLATE]} if TEMPLATE in metadata else {}) | named
    return tokenizer


def stop_ids(metadata: Mapping[str, Any]) -> list[int]:
    """The tokens at which llama.cpp ends a reply, the end-of-sequence token first."""
    found = [metadata.get(f"tokenizer.ggml.{name}_token_id") for name in STOPS]
    return list(dict.fromkeys(token for token in found if token is not None))


def _mend_bpe(tokenizer: Any, metadata: Mapping[str, Any]) -> None:
    backend = tokenizer.backend_tokenizer
    kind = metadata.get("tokenizer.ggml.pre", "gpt-2")
    if kind in SINGLE_DIGITS:
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    elif kind not in PLAIN_GPT2 and kind not in GGUF_PRE_TOKENIZER_SPLITS:
        raise ValueError(f"its pre-tokenizer `{kind}` is not known here")
    if kind in LIKE_LLAMA3:
        model = backend.model
        model.ignore_merges = True
        backend.model = model
        if "tokenizer.ggml.add_bos_token" not in metadata and tokenizer.bos_token is not None:
            tokenizer.add_bos_token = True
            tokenizer.update_post_processor()


def _mend_sentencepiece(tokenizer: Any, metadata: Mapping[str, Any]) -> None:
    # Gemma's has no such prefix, whatever the file says.
    gemma = str(metadata["general.architecture"]).startswith("gemma")
    if not gemma and metadata.get("tokenizer.ggml.add_space_prefix") is False:
        tokenizer.backend_tokenizer.normalizer = None
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)


def _refuse_unknown(metadata: Mapping[str, Any]) -> None:
    for key, value in sorted(metadata.items()):
        name = key.removeprefix("tokenizer.")
        # A token's role (`ggml.fim_pre_token_id`) changes nothing of how text is split.
        known = name in KNOWN or name.startswith("chat_template.") or name.endswith("_token_id")
        # SentencePiece's unigram models alone read these two; a false switch does nothing.
        unigram = name in ("ggml.remove_extra_whitespaces", "ggml.precompiled_charsmap")
        if name != key and not known and not unigram and value is not False:
            raise ValueError(f"its metadata has {key} = {value}, which would be lost")
