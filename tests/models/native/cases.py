"""Random tensors, numbers of threads, and tiny policies with heads as wide as tiles want them."""

import contextlib
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from slimrl.models.forward.attention import ATTENTION
from slimrl.models.native import ops
from tests.tiny import with_random_norms

HALF_STEP = 2.0**-8  # the largest relative error of rounding to bfloat16
NAN, INF = float("nan"), float("inf")


def skip_without_kernels() -> None:
    if not ops.available(torch.empty(0)):
        pytest.skip("there is no C++ compiler that makes kernels")


def skip_without_tiles() -> None:
    skip_without_kernels()
    if not ops.has_tiles(torch.empty(0, dtype=torch.bfloat16)):
        pytest.skip("this CPU has neither AMX nor AVX512-BF16")


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@contextlib.contextmanager
def threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def wide_policy(family: str) -> nn.Module:
    """A random causal LM with 4 heads of 64 on 2 key-value heads, as slimrl runs it, whose weights are bfloat16."""
    shape = {
        "vocab_size": 320,
        "hidden_size": 256 if family == "phi3" else 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "max_position_embeddings": 1024,
        "initializer_range": 0.2,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "pad_token_id": 2,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module: nn.Module
        if family == "llama":
            module = LlamaForCausalLM(LlamaConfig(**shape, tie_word_embeddings=False))
        elif family == "qwen2":  # with biases, and two layers of three that look back 40 positions
            del shape["head_dim"]
            windows = {"use_sliding_window": True, "sliding_window": 40, "max_window_layers": 1}
            sizes = {"hidden_size": 256, "num_hidden_layers": 3}
            module = Qwen2ForCausalLM(Qwen2Config(**{**shape, **sizes}, **windows, tie_word_embeddings=True))
            for name, parameter in module.named_parameters():
                if name.endswith("bias"):
                    nn.init.normal_(parameter)
        elif family == "qwen3":  # with norms of heads
            module = Qwen3ForCausalLM(Qwen3Config(**shape, tie_word_embeddings=True))
        elif family == "phi3":  # whose queries, keys and values are parts of one projection
            module = Phi3ForCausalLM(Phi3Config(**shape, tie_word_embeddings=False))
        else:
            layers = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 16}
            module = Gemma3ForCausalLM(Gemma3TextConfig(**shape, **layers, query_pre_attn_scalar=64))
        with_random_norms(module)
    module.set_attn_implementation(ATTENTION)
    return module.eval().to(torch.bfloat16)
