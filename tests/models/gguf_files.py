"""Writes tiny GGUF files as llama.cpp's converter does, so that reading them can be compared with the original."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gguf import MODEL_ARCH_NAMES, GGUFWriter, TokenType, get_tensor_name_map
from transformers import PreTrainedModel, PreTrainedTokenizerFast

ARCHITECTURES = {"gemma3_text": "gemma3"}
PAIRED = ("llama", "smollm3", "granite")  # rotary dimensions that belong together are neighbours in their files
# The bytes (rows, M) of a tensor with this name and these values, and the code of their type; None leaves them float32.
Encode = Callable[[str, np.ndarray], tuple[np.ndarray, int] | None]


@dataclass(frozen=True)
class More:
    """What a file has besides: keys (those behind `tokenizer.` whole, others of the architecture) and tensors."""

    keys: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, np.ndarray] = field(default_factory=dict)


NOTHING = More()


def write_gguf(
    path: Path,
    module: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    pre: str = "gpt-2",
    encode: Encode = lambda name, values: None,
    more: More = NOTHING,
) -> Path:
    """Write a model with a byte-level tokenizer to `path`; `encode` quantizes tensors."""
    architecture = ARCHITECTURES.get(module.config.model_type, module.config.model_type)
    writer = GGUFWriter(path, architecture)
    _add_config(writer, module)
    _add_tokenizer(writer, tokenizer, pre)
    for key, value in more.keys.items():
        whole = key if key.startswith(("tokenizer.", "split.", "general.")) else f"{architecture}.{key}"
        writer.kv_data[0].pop(whole, None)  # what is added here stands in place of what is there
        if value is not None:
            _add_value(writer, whole, value)
    own = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
    if module.config.tie_word_embeddings:
        own.pop("lm_head.weight")
    [number] = [number for number, name in MODEL_ARCH_NAMES.items() if name == architecture]
    names = get_tensor_name_map(number, module.config.num_hidden_layers)
    for name, values in own.items():
        stem, suffix = name.rsplit(".", 1)
        place, stored = f"{names.get_name(stem)}.{suffix}", _stored(architecture, name, values, module.config)
        _add_tensor(writer, place, stored, encode)
    for name, values in more.tensors.items():
        _add_tensor(writer, name, values.astype(np.float32), encode)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tensor(writer: GGUFWriter, name: str, values: np.ndarray, encode: Encode) -> None:
    if encoded := encode(name, values):
        stored, kind = encoded
        # As signed bytes: the writer works out the shape of unsigned ones itself, which fails for types it lacks.
        writer.add_tensor(name, stored.view(np.int8), raw_shape=values.shape, raw_dtype=kind)
    else:
        writer.add_tensor(name, values)


def _add_value(writer: GGUFWriter, key: str, value: Any) -> None:
    kinds = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    kinds.get(type(value), writer.add_array)(key, value)


def _add_config(writer: GGUFWriter, module: PreTrainedModel) -> None:
    config = module.config
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    width = module.model.layers[0].self_attn.head_dim
    if config.model_type in (*PAIRED, "phi3"):
        writer.add_rope_dimension_count(int(width * rope.get("partial_rotary_factor", 1.0)))
    elif config.model_type != "qwen2":
        writer.add_key_length(width)
        writer.add_value_length(width)
    if config.model_type == "gemma3_text":
        writer.add_sliding_window(config.sliding_window)
    if config.model_type == "granite":
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    writer.add_vocab_size(config.vocab_size)


def _add_tokenizer(writer: GGUFWriter, tokenizer: PreTrainedTokenizerFast, pre: str) -> None:
    tokens = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    special = set(tokenizer.all_special_ids) | set(tokenizer.added_tokens_decoder)
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL if i in special else TokenType.NORMAL for i in range(len(tokens))])
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_add_bos_token(False)
    writer.add_chat_template(tokenizer.chat_template)


def _stored(architecture: str, name: str, values: np.ndarray, config: Any) -> np.ndarray:
    """The numbers as GGUF has them.

    Llama's pair neighbouring rotary dimensions where Hugging Face pairs halves: the rows of q and k are permuted. The
    weights of Gemma's norms are off by one.
    """
    if architecture.startswith("gemma") and name.endswith("norm.weight"):
        return values + 1
    if architecture not in PAIRED or not name.endswith(("q_proj.weight", "k_proj.weight")):
        return values
    count = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
    rows, columns = values.shape
    paired = values.reshape(count, 2, rows // count // 2, columns).swapaxes(1, 2)
    return np.ascontiguousarray(paired.reshape(rows, columns))
