"""Builds the tokenizer of a GGUF file from its metadata. It splits text like llama.cpp.

Raises ValueError for a tokenizer that would split text differently.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

# Values of `tokenizer.ggml.pre` (llama.cpp, `llm_tokenizer_bpe`): they decide how text is split before BPE merges. With
# these values, every digit is split off, and the rest is split like GPT-2 ...
SINGLE_DIGITS = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"})
# ... with these, text is split like GPT-2 ...
PLAIN_GPT2 = frozenset({"gpt-2", "phi-2", "mpt", "olmo", "jais", "exaone4", "trillion", "granite-docling"})
# ... with these, a text starts with BOS unless the file forbids it, and a word that is a token stays whole ...
LIKE_LLAMA3 = frozenset(
    {"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "tekken"}
)
# ... and with these, text is split by a pattern, which is also in the models' `tokenizer.json`. Any other value is
# refused, because text would be split wrongly without a warning.
WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LOWER = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
UPPER = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
LLAMA3 = rf"{CONTRACTIONS}|{WORDS}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{SPACES}"
QWEN2 = rf"{CONTRACTIONS}|{WORDS}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{SPACES}"
TEKKEN = rf"{LOWER}|{UPPER}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}"
GPT4O = rf"{LOWER}{CONTRACTIONS}?|{UPPER}{CONTRACTIONS}?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}"
PATTERNS = {
    **dict.fromkeys(LIKE_LLAMA3 | {"jina-v5-nano", "dbrx", "smaug-bpe"}, LLAMA3),
    "tekken": TEKKEN,
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez"), QWEN2),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), GPT4O),
}
CONTROL, USER_DEFINED = 3, 4  # types of tokens that are never split: markers, and words like `<think>`

TEMPLATE = "tokenizer.chat_template"
# Keys that are read here, or that change nothing for these kinds of tokenizers. A switch that is false changes nothing
# either.
KNOWN = re.compile(
    r"tokenizer\.(chat_templates?(\..+)?|huggingface\.json|ggml\.(model|pre|tokens|token_type|token_type_count|scores|"
    r"merges|add_(bos|eos|sep)_token|add_space_prefix|\w+_token_id|remove_extra_whitespaces|precompiled_charsmap))"
)
# The names of special tokens: in transformers -> in GGUF.
ROLES = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
# The tokens that end a reply: end of text, of turn, and of message.
STOPS = ("eos", "eot", "eom")


def build_tokenizer(metadata: Mapping[str, Any]) -> Any:
    """Build the tokenizer that a file's metadata describes, with its chat templates."""
    for key, value in sorted(metadata.items()):
        if key.startswith("tokenizer.") and not KNOWN.fullmatch(key) and value is not False:
            raise ValueError(f"its metadata has {key} = {value!r:.80}, which would be lost")
    match metadata.get("tokenizer.ggml.model"):
        case "gpt2":
            backend, begins_with_bos = _byte_level(metadata)
        case "llama":
            backend, begins_with_bos = _sentencepiece(metadata), True
        case kind:
            raise ValueError(f"its tokenizer `{kind}` is not known here")
    _add_whole_tokens(backend, metadata)
    tokens = metadata["tokenizer.ggml.tokens"]
    ids = {role: metadata.get(f"tokenizer.ggml.{name}_token_id") for role, name in ROLES.items()}
    roles = {role: tokens[token] for role, token in ids.items() if token is not None}
    tokenizer: Any = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        clean_up_tokenization_spaces=False,
        add_bos_token="bos_token" in roles and metadata.get("tokenizer.ggml.add_bos_token", begins_with_bos),
        add_eos_token="eos_token" in roles and metadata.get("tokenizer.ggml.add_eos_token", False),
        **roles,
    )
    tokenizer.chat_template = metadata.get(TEMPLATE)
    if names := metadata.get("tokenizer.chat_templates"):
        named = {name: metadata[f"{TEMPLATE}.{name}"] for name in names if f"{TEMPLATE}.{name}" in metadata}
        tokenizer.chat_template = ({"default": metadata[TEMPLATE]} if TEMPLATE in metadata else {}) | named
    return tokenizer


def stop_ids(metadata: Mapping[str, Any]) -> list[int]:
    """Return the tokens at which llama.cpp ends a reply, the end-of-sequence token first."""
    found = [metadata.get(f"tokenizer.ggml.{name}_token_id") for name in STOPS]
    return list(dict.fromkeys(token for token in found if token is not None))


def _byte_level(metadata: Mapping[str, Any]) -> tuple[Tokenizer, bool]:
    """Build a byte-level BPE tokenizer. The second result is True if a text starts with the BOS token by default."""
    kind = metadata.get("tokenizer.ggml.pre", "gpt-2")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if kind in PATTERNS:
        split = pre_tokenizers.Split(Regex(PATTERNS[kind]), behavior="isolated")
        steps = [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    elif kind in SINGLE_DIGITS:
        steps = [pre_tokenizers.Digits(individual_digits=True), byte_level]
    elif kind in PLAIN_GPT2:
        steps = [byte_level]
    else:
        raise ValueError(f"its pre-tokenizer `{kind}` is not known here")
    merges = [(left, right) for left, _, right in (m.partition(" ") for m in metadata["tokenizer.ggml.merges"])]
    vocabulary = _vocabulary(metadata["tokenizer.ggml.tokens"])
    backend = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=kind in LIKE_LLAMA3))
    backend.pre_tokenizer = pre_tokenizers.Sequence(steps)
    backend.decoder = decoders.ByteLevel()
    return backend, kind in LIKE_LLAMA3


def _sentencepiece(metadata: Mapping[str, Any]) -> Tokenizer:
    """Build a BPE tokenizer over characters. It writes a space as `▁`, and splits an unknown character into bytes."""
    architecture = str(metadata["general.architecture"])
    gemma = architecture.startswith("gemma")
    # In Gemma's files, tokens that consist only of spaces are written with spaces instead of `▁`.
    tokens = [token.replace(" ", "▁") if not token.strip(" ") else token for token in metadata["tokenizer.ggml.tokens"]]
    # The merge with the highest score is applied first; for Gemma, the merge into the earliest token.
    scores = [-float(index) for index in range(len(tokens))] if gemma else metadata["tokenizer.ggml.scores"]
    unknown = metadata.get("tokenizer.ggml.unknown_token_id")
    backend = Tokenizer(
        models.BPE(
            _vocabulary(tokens),
            _merges(tokens, scores),
            unk_token=None if unknown is None else tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    # Gemma never adds a space in front of a text, even if the file asks for it.
    prefixed = not gemma and metadata.get("tokenizer.ggml.add_space_prefix", True)
    if architecture == "phi3" and prefixed:  # it adds a space even if the text starts with one
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first" if prefixed else "never", split=False)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefixed else steps)
    return backend


def _vocabulary(tokens: Sequence[str]) -> dict[str, int]:
    vocabulary = {token: index for index, token in enumerate(tokens)}
    if len(vocabulary) < len(tokens):
        raise ValueError("two of its tokens are the same text")
    return vocabulary


def _merges(tokens: Sequence[str], scores: Sequence[float]) -> list[tuple[str, str]]:
    """Return every split of a token into two other tokens, the best split first."""
    known = frozenset(tokens)
    cuts = (
        (-score, token[:cut], token[cut:])
        for token, score in zip(tokens, scores, strict=True)
        for cut in range(1, len(token))
        if token[:cut] in known and token[cut:] in known
    )
    ranked = sorted(cuts, key=lambda cut: (cut[0], -len(cut[1]), -len(cut[2])))
    return [(left, right) for _, left, right in ranked]


def _add_whole_tokens(backend: Tokenizer, metadata: Mapping[str, Any]) -> None:
    """Add the control and user-defined tokens: the tokenizer finds them in a text before it splits the rest."""
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata.get("tokenizer.ggml.token_type", [])
    for token, kind in zip(tokens, kinds, strict=False):
        added = AddedToken(token, normalized=False, special=kind == CONTROL)
        if kind == CONTROL:
            backend.add_special_tokens([added])
        elif kind == USER_DEFINED and backend.token_to_id(token) is not None:
            backend.add_tokens([added])
