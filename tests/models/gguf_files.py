"""Writes tiny GGUF files as llama.cpp's converter does, so that reading them can be compared with the original."""

import json
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, TokenType
from gguf.quants import quantize
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(
    path: Path,
    module: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    pre: str = "gpt-2",
    quantised: bool = False,
) -> Path:
    """Write a Llama with a byte-level tokenizer to `path`; `quantised` stores the matrices as Q8_0."""
    writer = GGUFWriter(path, "llama")
    _add_config(writer, module)
    _add_tokenizer(writer, tokenizer, pre)
    for name, tensor in module.state_dict().items():
        values = _llama_order(name, tensor.numpy(), module.config)
        if quantised and values.ndim == 2:
            kind = GGMLQuantizationType.Q8_0
            writer.add_tensor(_gguf_name(name), quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(_gguf_name(name), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_config(writer: GGUFWriter, module: LlamaForCausalLM) -> None:
    config = module.config
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
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


def _gguf_name(name: str) -> str:
    stem, suffix = name.rsplit(".", 1)
    if stem.startswith("model.layers."):
        _, _, layer, rest = stem.split(".", 3)
        return f"blk.{layer}.{NAMES[rest]}.{suffix}"
    return f"{NAMES[stem]}.{suffix}"


def _llama_order(name: str, values: np.ndarray, config: LlamaConfig) -> np.ndarray:
    """GGUF pairs neighbouring rotary dimensions where Hugging Face pairs halves: the rows of q and k are permuted."""
    if not name.endswith(("q_proj.weight", "k_proj.weight")):
        return values
    count = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
    rows, columns = values.shape
    paired = values.reshape(count, 2, rows // count // 2, columns).swapaxes(1, 2)
    return np.ascontiguousarray(paired.reshape(rows, columns))
