"""Builds the tokenizer of a GGUF file from its metadata. The tokenizer splits text like llama.cpp.

Raises ValueError for a tokenizer that would split text differently.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

PRE_TOKENIZERS = Path(__file__).with_name("pre_tokenizers.toml")
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
    splits = tomllib.loads(PRE_TOKENIZERS.read_text(encoding="utf-8"))["split"]
    split: dict[str, Any] | None = next((row for row in splits if kind in row["names"]), None)
    if split is None:
        raise ValueError(f"its pre-tokenizer `{kind}` is not known here")
    pattern, whole_words = split.get("pattern"), split.get("whole_words", False)
    steps: list[Any] = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)]
    if pattern is not None:
        steps.insert(0, pre_tokenizers.Split(Regex(pattern), behavior="isolated"))
    elif split.get("single_digits"):
        steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
    merges = [(left, right) for left, _, right in (m.partition(" ") for m in metadata["tokenizer.ggml.merges"])]
    vocabulary = _vocabulary(metadata["tokenizer.ggml.tokens"])
    backend = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=whole_words))
    backend.pre_tokenizer = pre_tokenizers.Sequence(steps)
    backend.decoder = decoders.ByteLevel()
    return backend, whole_words


def _sentencepiece(metadata: Mapping[str, Any]) -> Tokenizer:
    """Build a BPE tokenizer over characters. The tokenizer writes a space as `▁`, and splits an unknown character into
    bytes."""
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
    if architecture == "phi3" and prefixed:  # Phi-3 adds a space even before a space
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
    """Return every split of a token into two other tokens, the token with the highest score first."""
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
