"""Builds the config of a model from the metadata of its GGUF file. Keys that affect the model's results are either read
or refused, but never ignored.

Raises ValueError, with the key's name, for a key that transformers' config cannot express.
"""

from collections.abc import Mapping
from typing import Any

import torch
from transformers import AutoConfig, PreTrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from slimrl.models.gguf_header import GgufHeader

# Tensors without weights. Each holds a divisor for every rotary frequency: for all, for long or for short contexts.
FREQUENCIES, LONG, SHORT = "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"
ROPE_TENSORS = frozenset({FREQUENCIES, LONG, SHORT})

# Supported architectures of llama.cpp -> `model_type` in transformers.
MODEL_TYPES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma3": "gemma3_text",
    "phi3": "phi3",
    "smollm3": "smollm3",
    "granite": "granite",
}
PAIRED = ("llama", "smollm3", "granite")  # llama.cpp rotates neighbouring dimensions of their heads
# Keys that every file has -> settings of a config.
SHAPE = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}
OPTIONAL = {
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "vocab_size": "vocab_size",
}
WITH_WINDOW = ("gemma3", "phi3")
# Keys of one architecture -> settings of its config.
OWN = {
    "granite": {
        "attention.scale": "attention_multiplier",
        "embedding_scale": "embedding_multiplier",
        "logit_scale": "logits_scaling",
        "residual_scale": "residual_multiplier",
    }
}
# The names of special tokens: in a config -> in a file.
TOKENS = {"bos": "bos", "eos": "eos", "pad": "padding"}
# Keys that describe the file and do not affect results.
DESCRIPTIVE = ("tensor_data_layout", "rope.scaling.finetuned", "pooling_type")
# In files of this architecture alone, the key has an effect: rotary positions are off.
WITHOUT_ROPE = ("granite", "rope.scaling.finetuned", False)
# The settings of every published Llama with `rope_type = "llama3"`; only the factor varies.
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}

GEMMA3_27B_LAYERS = 62

_Keys = dict[str, Any]  # the architecture's metadata; each key is removed when it is read


def build_config(header: GgufHeader) -> PreTrainedConfig:
    """Return the config of the model in a file.

    Raises ValueError for one part of a split file, an unknown architecture, or a key that the config cannot express.
    """
    metadata, architecture = header.metadata, header.architecture
    if (count := metadata.get("split.count", 0)) > 1:
        raise ValueError(f"it is one of {count} parts; join them with `llama-gguf-split --merge`")
    keys = _read_keys(header)
    keys.setdefault("attention.head_count_kv", keys["attention.head_count"])
    width = keys["embedding_length"] // keys["attention.head_count"]
    head = keys.setdefault("attention.key_length", width)
    if keys.pop("attention.value_length", head) != head:
        raise ValueError("its keys and values have heads of different widths")
    settings = _read_windows(architecture, keys)
    if architecture == "granite":
        keys.setdefault("attention.scale", head**-0.5)
    for key, setting in (SHAPE | OPTIONAL | OWN.get(architecture, {})).items():
        if key in keys:
            settings[setting] = keys.pop(key)
    settings.setdefault("vocab_size", len(metadata["tokenizer.ggml.tokens"]))
    if architecture == "gemma3":
        # As in llama.cpp, which recognises the 27B model by its number of layers.
        settings["query_pre_attn_scalar"] = width if settings["num_hidden_layers"] == GEMMA3_27B_LAYERS else head
    # A missing id stays None: the default of the config's class would be another model's id.
    ids = {f"{role}_token_id": metadata.get(f"tokenizer.ggml.{name}_token_id") for role, name in TOKENS.items()}
    config = AutoConfig.for_model(
        MODEL_TYPES[architecture],
        **settings,
        **ids,
        tie_word_embeddings="output.weight" not in header.tensors,
    )
    fields = config.to_dict()
    rope = {name: header.read(header.tensors[name]).tolist() for name in sorted(ROPE_TENSORS & header.tensors.keys())}
    _read_rope(fields, keys, head, rope)
    for key in sorted(keys):
        raise ValueError(f"its metadata has {architecture}.{key} = {keys[key]}, which would be lost")
    return type(config).from_dict(fields)


def _read_keys(header: GgufHeader) -> _Keys:
    """Return the metadata of the file's architecture that may affect results. Keys with the number 0 are left out,
    because 0 disables a feature. Raises ValueError for an unknown architecture and for unusable keys."""
    architecture = header.architecture
    if architecture not in MODEL_TYPES:
        known = f"known: {', '.join(MODEL_TYPES)}"
        raise ValueError(
            f"its architecture {architecture:.40} is not known here, or its layers carry a state ({known})"
        )
    start = f"{architecture}."
    own = {key.removeprefix(start): value for key, value in header.metadata.items() if key.startswith(start)}
    keys: _Keys = {key: value for key, value in own.items() if value or isinstance(value, bool | str)}
    for key in DESCRIPTIVE:
        if (architecture, key, keys.get(key)) != WITHOUT_ROPE:
            keys.pop(key, None)
    if missing := [key for key in SHAPE if key not in keys]:
        raise ValueError(f"its metadata lacks {architecture}.{missing[0]}")
    if lists := sorted(key for key in SHAPE | OPTIONAL if isinstance(keys.get(key), list)):
        raise ValueError(f"{architecture}.{lists[0]} differs from layer to layer")
    if keys["block_count"] > len(header.tensors):
        raise ValueError(f"{architecture}.block_count is {keys['block_count']}, with {len(header.tensors)} tensors")
    return keys


def _read_windows(architecture: str, keys: _Keys) -> dict[str, Any]:
    """Return the settings of sliding attention: the width of the window, and the type of each layer. The file has
    either a flag for each layer, or a number n: then every n-th layer has no window."""
    # A window as long as the context hides no position.
    if keys.get("attention.sliding_window", 0) >= keys["context_length"]:
        del keys["attention.sliding_window"]
    if architecture not in WITH_WINDOW or "attention.sliding_window" not in keys:
        return {}
    window: dict[str, Any] = {"sliding_window": keys.pop("attention.sliding_window")}
    num, pattern = keys["block_count"], keys.pop("attention.sliding_window_pattern", None)
    if pattern is not None:
        slides = pattern if isinstance(pattern, list) else [(layer + 1) % pattern for layer in range(num)]
        window["layer_types"] = ["sliding_attention" if slide else "full_attention" for slide in slides]
    return window


def _read_rope(fields: dict[str, Any], keys: _Keys, width: int, tensors: Mapping[str, list[float]]) -> None:
    """Write the base, width and scaling of the rotary positions to `fields`. `width` is the size of an attention head.
    `tensors` has the file's frequency factors by name."""
    rope = fields["rope_parameters"]
    # Models with two kinds of layers have parameters for each kind. Only layers without a window are scaled.
    full = rope.get("full_attention", rope)
    full["rope_theta"] = keys.pop("rope.freq_base", 10000.0)
    if "sliding_attention" in rope:
        own = rope["sliding_attention"]
        own["rope_theta"] = keys.pop("rope.freq_base_swa", own["rope_theta"])
    rotary = keys.pop("rope.dimension_count", width)
    if "partial_rotary_factor" in full:
        full["partial_rotary_factor"] = rotary / width
        if "partial_rotary_factor" in fields:  # transformers 5.0 reads this setting
            fields["partial_rotary_factor"] = rotary / width
    elif rotary != width:
        raise ValueError(f"only {rotary} of the {width} dimensions of a head are rotated (rope.dimension_count)")
    full |= _read_scaling(fields | {"head_dim": width}, full, keys, tensors)


def _read_scaling(
    fields: dict[str, Any], rope: Mapping[str, Any], keys: _Keys, tensors: Mapping[str, list[float]]
) -> dict[str, Any]:
    """Return the parameters that scale the rotary positions; empty without scaling. Raises ValueError for an unknown
    kind of scaling."""
    kind, factor = keys.pop("rope.scaling.type", "linear"), keys.pop("rope.scaling.factor", 1.0)
    original = keys.pop("rope.scaling.original_context_length", fields["max_position_embeddings"])
    is_scaled = kind == "yarn" or (kind == "linear" and factor != 1.0)
    if set(tensors) == {LONG, SHORT} and not is_scaled:
        return {
            "rope_type": "longrope",
            "short_factor": tensors[SHORT],
            "long_factor": tensors[LONG],
            "original_max_position_embeddings": original,
            "attention_factor": keys.pop("rope.scaling.attn_factor", 1.0),
        }
    if set(tensors) <= {FREQUENCIES} and kind in ("none", "linear") and not is_scaled:
        return _read_frequencies(fields, rope, tensors[FREQUENCIES]) if FREQUENCIES in tensors else {}
    if kind != "linear" or tensors:
        raise ValueError(f"rope.scaling.type = {kind} is not known here with the tensors {sorted(tensors)}")
    return {"rope_type": "linear", "factor": factor}


def _read_frequencies(fields: dict[str, Any], rope: Mapping[str, Any], factors: list[float]) -> dict[str, Any]:
    """Return the parameters that divide the rotary frequencies by `factors`; empty if all factors are 1. Raises
    ValueError unless they are the factors of Llama 3's scaling."""
    if all(factor == 1.0 for factor in factors):
        return {}
    llama3 = {"rope_type": "llama3", "factor": max(factors), **LLAMA3}
    config = PreTrainedConfig(**fields | {"rope_parameters": {**rope, **llama3}})
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    plain = rope["rope_theta"] ** (-torch.arange(0, 2 * len(scaled), 2) / (2 * len(scaled)))
    if [round(factor, 2) for factor in (plain / scaled).tolist()] != [round(factor, 2) for factor in factors]:
        raise ValueError(f"{FREQUENCIES} has other factors than Llama 3's: {factors[:8]}")
    return llama3
