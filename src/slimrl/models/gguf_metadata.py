"""Builds the config of a GGUF file's model from its metadata: every key that changes a number is read, or refused.

Raises ValueError, with the key's name, for a key that transformers' config cannot express.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoConfig, PreTrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

# Tensors that hold no weights: a divisor for every rotary frequency, for all positions or for short and long contexts.
FREQUENCIES, LONG, SHORT = "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"
ROPE_TENSORS = frozenset({FREQUENCIES, LONG, SHORT})

# llama.cpp's architectures that can be read, to the `model_type` of transformers.
MODEL_TYPES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3moe": "qwen3_moe",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
    "phi3": "phi3",
}
# Keys that every file has, to the settings of a config.
SHAPE = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}
# Keys of one architecture, and settings that its files leave out.
OWN_KEYS = {
    "gemma2": {"attention.sliding_window": "sliding_window"},
    "gemma3": {"attention.sliding_window": "sliding_window"},
    "qwen3moe": {"expert_count": "num_experts", "expert_used_count": "num_experts_per_tok"},
}
# The roles of tokens in a config, and in a file.
TOKENS = {"bos": "bos", "eos": "eos", "pad": "padding"}
OWN_SETTINGS = {"qwen3moe": {"norm_topk_prob": True}}  # llama.cpp, src/models/qwen3moe.cpp
# Keys that describe the file and change no number.
DESCRIPTIVE = frozenset({"vocab_size", "tensor_data_layout", "rope.scaling.finetuned", "pooling_type"})
# Keys to the setting of the config that means the same, where a config has it.
SETTINGS = {
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "expert_feed_forward_length": "moe_intermediate_size",
}
# Keys with the values that leave the computation as it is without them.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "attention.causal": (True,),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "attention.sliding_window": (0,),
    "attention.temperature_scale": (0.0,),
    "attn_logit_softcapping": (0.0,),
    "final_logit_softcapping": (0.0,),
    "logit_scale": (0.0, 1.0),
    "residual_scale": (0.0, 1.0),
    "embedding_scale": (0.0, 1.0),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "leading_dense_block_count": (0,),
    "nextn_predict_layers": (0,),
    "rope.scaling.yarn_ext_factor": (-1.0, 1.0),
    "rope.scaling.yarn_attn_factor": (1.0,),
    "rope.scaling.yarn_log_multiplier": (0.0,),
    "rope.scaling.alpha": (0.0, 1.0),
}
# Keys that give a tensor one of its lengths.
SIZES = (
    "embedding_length",
    "feed_forward_length",
    "vocab_size",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "rope.dimension_count",
    "expert_count",
    "expert_used_count",
    "expert_feed_forward_length",
)
# What every published Llama with `rope_type = "llama3"` has, besides a factor of its own.
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
# llama.cpp knows these by their number of layers, and scales their queries by another width than the head's.
LARGEST = {("gemma2", 46), ("gemma3", 62)}


@dataclass(slots=True)
class _Keys:
    """The metadata of one architecture, with what has been read of it."""

    values: Mapping[str, Any]
    read: set[str]

    def get(self, key: str, default: Any) -> Any:
        self.read.add(key)
        return self.values.get(key, default)


def check_metadata(metadata: Mapping[str, Any]) -> None:
    """Raise ValueError for a file in parts, of an unknown architecture, or whose layers differ in shape."""
    if (count := metadata.get("split.count", 0)) > 1:
        raise ValueError(f"it is one of {count} parts; join them with `llama-gguf-split --merge`")
    architecture, keys = _keys_of(metadata)
    if architecture not in MODEL_TYPES:
        raise ValueError(f"its architecture {architecture:.40} is not known here (known: {', '.join(MODEL_TYPES)})")
    if missing := [key for key in SHAPE if key not in keys.values]:
        raise ValueError(f"its metadata lacks {architecture}.{missing[0]}")
    if lists := sorted(key for key in (*SHAPE, "attention.head_count_kv") if isinstance(keys.values.get(key), list)):
        raise ValueError(f"{architecture}.{lists[0]} differs from layer to layer")


def check_sizes(metadata: Mapping[str, Any], shapes: Sequence[tuple[int, ...]]) -> None:
    """Raise ValueError for a size that none of the file's tensors has: the model that is made by these numbers would
    take any amount of memory."""
    architecture, keys = _keys_of(metadata)
    most = {name: max((length for shape in shapes for length in shape), default=0) for name in SIZES}
    most["block_count"] = len(shapes)
    for name, limit in most.items():
        value = keys.values.get(name, 0)
        if type(value) is not int or not 0 <= value <= limit:
            raise ValueError(f"{architecture}.{name} is {value!r:.40}, and by its tensors it is at most {limit}")


def build_config(metadata: Mapping[str, Any], rope_tensors: Mapping[str, list[float]], tied: bool) -> PreTrainedConfig:
    """The config of a file that `check_metadata` let pass.

    `rope_tensors` are the file's tensors of rotary factors; `tied` is whether the embeddings are also the LM head.
    """
    architecture, keys = _keys_of(metadata)
    known = SHAPE | OWN_KEYS.get(architecture, {})
    settings = {setting: keys.get(key, None) for key, setting in known.items() if key in keys.values}
    # A missing id is none: a default of the config's class would be another model's.
    ids = {f"{role}_token_id": metadata.get(f"tokenizer.ggml.{name}_token_id") for role, name in TOKENS.items()}
    config = AutoConfig.for_model(
        MODEL_TYPES[architecture],
        **settings,
        **ids,
        **OWN_SETTINGS.get(architecture, {}),
        num_key_value_heads=keys.get("attention.head_count_kv", settings["num_attention_heads"]),
        vocab_size=keys.get("vocab_size", len(metadata["tokenizer.ggml.tokens"])),
        tie_word_embeddings=tied,
    )
    fields = config.to_dict()
    _read_attention(fields, keys, fields["hidden_size"] // fields["num_attention_heads"])
    _read_settings(fields, keys)
    _read_layers(fields, keys)
    if "query_pre_attn_scalar" in fields:
        largest = (architecture, keys.values.get("block_count")) in LARGEST
        fields["query_pre_attn_scalar"] = (
            fields["hidden_size"] // fields["num_attention_heads"] if largest else fields["head_dim"]
        )
    _read_rope(fields, keys, rope_tensors)
    _refuse_unread(architecture, keys)
    return type(config).from_dict(fields)


def _keys_of(metadata: Mapping[str, Any]) -> tuple[str, _Keys]:
    architecture = str(metadata["general.architecture"])
    start = f"{architecture}."
    values = {key[len(start) :]: value for key, value in metadata.items() if key.startswith(start)}
    return architecture, _Keys(values, set(DESCRIPTIVE))


def _read_attention(fields: dict[str, Any], keys: _Keys, width: int) -> None:
    """Take over how wide the heads are, where that is not the usual `width`."""
    key_length = keys.get("attention.key_length", width)
    if keys.get("attention.value_length", key_length) != key_length:
        raise ValueError("its keys and values have heads of different widths")
    # A config without the setting computes it so; others have a default of their own, which is another model's.
    if "head_dim" in fields or key_length != width:
        _assign(fields, "attention.key_length", key_length)
    if not math.isclose(keys.get("attention.scale", 0.0) or key_length**-0.5, key_length**-0.5, rel_tol=1e-4):
        raise ValueError(f"it scales attention by {keys.values['attention.scale']}")


def _read_settings(fields: dict[str, Any], keys: _Keys) -> None:
    for key in SETTINGS:
        value = keys.values.get(key)
        if key in keys.read or value is None or value in NEUTRAL.get(key, ()):
            continue
        # A window as long as the context cuts nothing off.
        if key != "attention.sliding_window" or value < keys.values.get("context_length", 0):
            _assign(fields, key, value)
        keys.read.add(key)


def _assign(fields: dict[str, Any], key: str, value: Any) -> None:
    # Some configs have a window and a switch for it, which is off.
    if SETTINGS[key] not in fields or (key == "attention.sliding_window" and "use_sliding_window" in fields):
        raise ValueError(f"{key} = {value}, and transformers' {fields['model_type']} has no such setting")
    fields[SETTINGS[key]] = value


def _read_layers(fields: dict[str, Any], keys: _Keys) -> None:
    """Take over which layers see a window only: every layer's own mark, or each how manieth is without."""
    pattern = keys.get("attention.sliding_window_pattern", None)
    if pattern is None:
        return
    num = fields["num_hidden_layers"]
    slides = [bool((layer + 1) % pattern) for layer in range(num)] if isinstance(pattern, int) else pattern
    if "layer_types" not in fields or len(slides) != num:
        raise ValueError(f"attention.sliding_window_pattern = {pattern} does not fit transformers' layers")
    fields["layer_types"] = ["sliding_attention" if slide else "full_attention" for slide in slides]


def _read_rope(fields: dict[str, Any], keys: _Keys, tensors: Mapping[str, list[float]]) -> None:
    """Take over the base, the width and the scaling of the rotary positions."""
    rope = fields["rope_parameters"]
    # Models whose layers differ have a setting for each kind, and only those without a window are scaled.
    full = rope.get("full_attention", rope)
    full["rope_theta"] = keys.get("rope.freq_base", 10000.0)
    if "sliding_attention" in rope:
        own = rope["sliding_attention"]
        own["rope_theta"] = keys.get("rope.freq_base_swa", own["rope_theta"])
    width = fields.get("head_dim") or fields["hidden_size"] // fields["num_attention_heads"]
    rotary = keys.get("rope.dimension_count", width)
    if "partial_rotary_factor" in full:
        full["partial_rotary_factor"] = rotary / width
        if "partial_rotary_factor" in fields:  # transformers 5.0 takes this one
            fields["partial_rotary_factor"] = rotary / width
    elif rotary != width:
        raise ValueError(f"only {rotary} of the {width} dimensions of a head are rotated (rope.dimension_count)")
    kind = keys.get("rope.scaling.type", "linear")
    factor = keys.get("rope.scaling.factor", keys.get("rope.scale_linear", 0.0)) or 1.0
    attention = keys.get("rope.scaling.attn_factor", 1.0)
    original = keys.get("rope.scaling.original_context_length", fields["max_position_embeddings"])
    if tensors:
        if kind == "yarn" or (kind == "linear" and factor != 1.0):
            raise ValueError(f"it has {min(tensors)} and also rope.scaling.type = {kind}")
        full |= _read_factors(fields, full, tensors, original, attention)
        return
    if kind not in SCALINGS:
        raise ValueError(f"rope.scaling.type = {kind} is not known here")
    full |= SCALINGS[kind](keys, factor, attention, original)


def _linear(keys: _Keys, factor: float, attention: float, original: int) -> dict[str, Any]:
    if attention != 1.0:
        raise ValueError(f"rope.scaling.attn_factor = {attention} without a scaling that has one")
    return {} if factor == 1.0 else {"rope_type": "linear", "factor": factor}


def _yarn(keys: _Keys, factor: float, attention: float, original: int) -> dict[str, Any]:
    return {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": original,
        # As llama.cpp has it: the file's factor comes on top of YaRN's own.
        "attention_factor": attention * (1.0 + 0.1 * math.log(factor)),
        "beta_fast": keys.get("rope.scaling.yarn_beta_fast", 32.0),
        "beta_slow": keys.get("rope.scaling.yarn_beta_slow", 1.0),
    }


def _unscaled(keys: _Keys, factor: float, attention: float, original: int) -> dict[str, Any]:
    return {}


def _no_factors(keys: _Keys, factor: float, attention: float, original: int) -> dict[str, Any]:
    raise ValueError(f"rope.scaling.type = longrope, and the tensors {LONG} and {SHORT} are missing")


SCALINGS: dict[str, Callable[[_Keys, float, float, int], dict[str, Any]]] = {
    "none": _unscaled,
    "linear": _linear,
    "yarn": _yarn,
    "longrope": _no_factors,
}


def _read_factors(
    fields: dict[str, Any], rope: Mapping[str, Any], tensors: Mapping[str, list[float]], original: int, attention: float
) -> dict[str, Any]:
    """The scaling that divides every rotary frequency by a factor of its own."""
    if set(tensors) not in ({FREQUENCIES}, {LONG, SHORT}):
        raise ValueError(f"of the tensors of rotary factors it has {', '.join(sorted(tensors))} only")
    short, long = (tensors.get(name, tensors.get(FREQUENCIES, [])) for name in (SHORT, LONG))
    if FREQUENCIES in tensors and attention == 1.0:
        if all(factor == 1.0 for factor in short):
            return {}
        # By its name where it has one, for other programs to know it; else any factors are a LongRoPE's.
        llama3 = {"rope_type": "llama3", "factor": max(short), **LLAMA3}
        if _divisors(fields, {**rope, **llama3}) == _rounded(short):
            return llama3
    return {
        "rope_type": "longrope",
        "short_factor": short,
        "long_factor": long,
        "original_max_position_embeddings": original,
        "attention_factor": attention,
    }


def _divisors(fields: dict[str, Any], rope: dict[str, Any]) -> list[float]:
    """What a scaling divides each rotary frequency by, rounded."""
    width = fields.get("head_dim") or fields["hidden_size"] // fields["num_attention_heads"]
    config = PreTrainedConfig(**fields | {"rope_parameters": rope, "head_dim": width})
    scaled, _ = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, torch.device("cpu"))
    plain = rope["rope_theta"] ** (-torch.arange(0, 2 * len(scaled), 2) / (2 * len(scaled)))
    return _rounded((plain / scaled).tolist())


def _rounded(factors: list[float]) -> list[float]:
    return [round(factor, 2) for factor in factors]


def _refuse_unread(architecture: str, keys: _Keys) -> None:
    for key, value in sorted(keys.values.items()):
        if key not in keys.read and value not in NEUTRAL.get(key, ()):
            raise ValueError(f"its metadata has {architecture}.{key} = {value}, which would be lost")
