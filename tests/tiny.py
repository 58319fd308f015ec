"""Tiny random models on disk, in the format of a real one, for tests of every part. Nothing is downloaded.

`tiny_model_dir(tmp_path, "llama")` returns a directory that plain transformers loads: two layers, random weights, and a
byte-level tokenizer (any text survives it) with a ChatML-style chat template whose end-of-turn token is the eos.
"""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)

FAMILIES = ("llama", "qwen3", "gemma3")  # besides, some tests use the others of `_initialised`
START, END = "<|im_start|>", "<|im_end|>"
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "user system assistant: reverse the text, then give the answer in tags.",
    "What is the capital of France? The capital is Paris.",
)


def tiny_tokenizer(vocab_size: int = 300, chat_template: str | None = CHATML) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer: three special tokens, 256 bytes, and merges learnt from a few sentences."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<|endoftext|>", START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|endoftext|>",
        eos_token=END,
        pad_token=END,
        additional_special_tokens=[START],
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = chat_template
    return wrapped


def tiny_module(
    family: str, vocab_size: int = 300, seed: int = 0, layers: int = 2, head_dim: int = 8
) -> PreTrainedModel:
    """A random causal LM of the family: hidden 32 (or a head), 2 `layers`, 4 heads of 8 on 2 of keys, 512 positions.

    The kernels of a GPU need a `head_dim` of at least 16.
    """
    shape = {
        "vocab_size": vocab_size,
        "hidden_size": max(32, head_dim),
        "intermediate_size": 64,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": head_dim,
        "max_position_embeddings": 512,
        "tie_word_embeddings": family != "llama",
        "bos_token_id": 0,
        "eos_token_id": 2,
        "pad_token_id": 2,
        "initializer_range": 0.2,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return with_random_norms(_initialised(family, shape))


def with_random_norms(module: nn.Module) -> Any:
    """Norms and biases are made as ones and zeros; a forward that leaves them out would not be found out."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
    return module


def _initialised(family: str, shape: dict[str, Any]) -> PreTrainedModel:
    # Gemma 3: one sliding-window layer shorter than the context and one full layer, as in the real models.
    layers = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 16, "query_pre_attn_scalar": 8}
    # Qwen 2 has biases, and a window in the second layer. In Phi 3, queries, keys and values are parts of one product.
    windows = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
    factors = {"attention_multiplier": 0.2, "embedding_multiplier": 3.0, "residual_multiplier": 0.5}
    wide = {**shape, "hidden_size": shape["num_attention_heads"] * shape["head_dim"]}
    make = {
        "llama": lambda: LlamaForCausalLM(LlamaConfig(**shape)),
        "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**shape)),
        "gemma3": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**shape, **layers)),
        "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**wide, **windows)),
        "phi3": lambda: Phi3ForCausalLM(Phi3Config(**wide)),
        "granite": lambda: GraniteForCausalLM(GraniteConfig(**shape, **factors, logits_scaling=4.0)),
        "smollm3": lambda: SmolLM3ForCausalLM(SmolLM3Config(**shape)),  # every fourth layer knows no positions
    }
    return make[family]()


def tiny_model_dir(
    parent: Path, family: str = "llama", vocab_size: int = 300, seed: int = 0, head_dim: int = 8
) -> Path:
    """Save a tiny random model with its tokenizer as `parent/tiny-<family>` and return that directory."""
    directory = parent / f"tiny-{family}"
    tiny_module(family, vocab_size, seed, head_dim=head_dim).save_pretrained(directory)
    tiny_tokenizer(vocab_size).save_pretrained(directory)
    return directory
