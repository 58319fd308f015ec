"""Files of the shapes and types that people have give the log-probabilities of llama.cpp itself.

The files are tiny and have random weights: seven architectures, each in every type that llama.cpp writes, and in a
mixture of types. Where the group `llamacpp` is not installed, these tests are skipped.
"""

from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GraniteConfig,
    LlamaConfig,
    Phi3Config,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
)

from slimrl.config.model import ModelConfig
from slimrl.models.forward.module import head_logits, last_hidden
from slimrl.models.gguf_metadata import LLAMA3
from slimrl.models.load import load_policy
from tests.models.gguf_files import Encode, More, write_gguf
from tests.models.test_gguf_metadata import llama3_factors
from tests.tiny import tiny_tokenizer, with_random_norms

pytest.importorskip("xllamacpp", reason="needs llama.cpp: `uv run --group llamacpp pytest -m nightly`")
from benchmarks.harness.llama_cpp import LlamaCpp, Quantizer

pytestmark = pytest.mark.nightly

VOCABULARY = 300
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 256,  # the largest block of a type
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "pad_token_id": 2,
    "initializer_range": 0.08,
}
# Phi-4-mini rotates three quarters of a head of 64 by long positions, and has a window as long as its context.
LONG = {"short_factor": [1 + 0.1 * i for i in range(24)], "long_factor": [1 + 0.5 * i for i in range(24)]}
LONGROPE = {"rope_type": "longrope", "original_max_position_embeddings": 256, "attention_factor": 1.2, **LONG}
PHI = {"rope_theta": 10000.0, "partial_rotary_factor": 0.75, **LONGROPE}
PHI_FILE = More(
    {"rope.scaling.attn_factor": 1.2, "rope.scaling.original_context_length": 256, "attention.sliding_window": 512},
    {f"rope_factors_{name.removesuffix('_factor')}.weight": np.array(factors) for name, factors in LONG.items()},
)
LLAMA = {"rope_theta": 500000.0, "rope_type": "llama3", "factor": 32.0, **LLAMA3}
LLAMA_FILE = More(tensors={"rope_freqs.weight": llama3_factors(32.0, 1.0, 4.0, 8192, 500000.0, width=64)})
GEMMA = {"head_dim": 64, "query_pre_attn_scalar": 64, "sliding_window": 16}
GEMMA_LAYERS = {"layer_types": ["sliding_attention", "full_attention"]}
GEMMA_FILE = More({"attention.sliding_window_pattern": 2, "rope.freq_base_swa": 10000.0})
FACTORS = {"attention_multiplier": 0.02, "embedding_multiplier": 6.0, "residual_multiplier": 0.3, "logits_scaling": 2.0}
CONFIGS: dict[str, tuple[Callable[[], Any], More]] = {
    "Qwen 2.5": (lambda: Qwen2Config(**SHAPE), More()),
    "Qwen 3": (lambda: Qwen3Config(**SHAPE, head_dim=128), More()),
    "Llama 3.2": (lambda: LlamaConfig(**SHAPE, rope_parameters=LLAMA), LLAMA_FILE),
    "SmolLM 3": (lambda: SmolLM3Config(**SHAPE | {"num_hidden_layers": 4}), More()),
    "Gemma 3": (lambda: Gemma3TextConfig(**SHAPE, **GEMMA, **GEMMA_LAYERS), GEMMA_FILE),
    "Phi 4 mini": (lambda: Phi3Config(**SHAPE, partial_rotary_factor=0.75, rope_parameters=PHI), PHI_FILE),
    "Granite": (lambda: GraniteConfig(**SHAPE, **FACTORS), More()),
}
# The largest mean difference relative to the spread of the log-probabilities. llama.cpp rounds each layer's inputs as
# well: to the file's 16-bit floats, or to 8 bits for quantized matrices.
LIMITS, QUANTIZED_LIMIT = {"f32": 0.001, "f16": 0.003, "bf16": 0.02}, 0.1
TOKENS = [int(token) for token in np.random.default_rng(1).integers(3, VOCABULARY, 40)]
LENGTHS = (1, 20, 40)  # prompts: beyond Gemma's window, too


@pytest.fixture
def quantizer() -> Quantizer:
    return Quantizer()


def module_of(name: str) -> PreTrainedModel:
    make, _ = CONFIGS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return with_random_norms(AutoModelForCausalLM.from_config(make())).eval()


def encoder(quantizer: Quantizer, kinds: Iterator[str]) -> Encode:
    """Quantize each matrix to the next of these types."""

    def encode(name: str, values: np.ndarray) -> tuple[np.ndarray, int] | None:
        if values.ndim < 2:
            return None
        kind = next(kinds)
        return quantizer.quantize(values, kind), quantizer.types[kind][0]

    return encode


@torch.inference_mode()
def differences(path: Path) -> list[float]:
    """The mean difference after each prompt, relative to the standard deviation of llama.cpp's log-probabilities."""
    module = load_policy(ModelConfig(name=str(path), device="cpu", dtype="float32")).module
    ours = head_logits(module, last_hidden(module, torch.tensor(TOKENS), torch.arange(len(TOKENS)), None))
    model, found = LlamaCpp(path, context=256), []
    for length in LENGTHS:
        answer = model.next_logprobs(TOKENS[:length], VOCABULARY)
        theirs = torch.tensor([answer[token] for token in range(VOCABULARY)])
        difference = ours[length - 1].float().log_softmax(-1) - theirs
        found.append(float(difference.abs().mean() / theirs.std()))
    return found


@pytest.mark.parametrize("name", CONFIGS)
def test_files_of_every_type_give_the_logprobs_of_llama_cpp(name: str, tmp_path: Path, quantizer: Quantizer) -> None:
    module, (_, more) = module_of(name), CONFIGS[name]
    assert len(quantizer.types) > 25
    for kind in (*quantizer.types, "mixed"):
        kinds = cycle(sorted(quantizer.types) if kind == "mixed" else [kind])
        path = write_gguf(tmp_path / "m.gguf", module, tiny_tokenizer(), encode=encoder(quantizer, kinds), more=more)
        assert max(differences(path)) < LIMITS.get(kind, QUANTIZED_LIMIT), kind


def test_a_matrix_that_is_stored_twice_gives_the_logprobs_of_llama_cpp(tmp_path: Path, quantizer: Quantizer) -> None:
    module = module_of("Qwen 2.5")
    more = More(tensors={"output.weight": module.get_input_embeddings().weight.detach().numpy()})

    def encode(name: str, values: np.ndarray) -> tuple[np.ndarray, int] | None:
        kind = {"token_embd.weight": "q5_0", "output.weight": "q8_0"}.get(name, "q4_K")
        return encoder(quantizer, cycle([kind]))(name, values)

    path = write_gguf(tmp_path / "m.gguf", module, tiny_tokenizer(), encode=encode, more=more)
    assert max(differences(path)) < QUANTIZED_LIMIT


def test_nvfp4_has_factors_beside_its_matrices(tmp_path: Path, quantizer: Quantizer) -> None:
    factors = {"attn_q": 1.5, "attn_output": 0.7, "ffn_up": 2.0, "ffn_down": 0.5}
    scales = {f"blk.{layer}.{name}.scale": np.array([value]) for layer in (0, 1) for name, value in factors.items()}
    inputs = {name.replace("scale", "input_scale"): np.ones(1) for name in scales}
    encode, more = encoder(quantizer, cycle(["nvfp4"])), More(tensors=scales | inputs)
    path = write_gguf(tmp_path / "m.gguf", module_of("Qwen 3"), tiny_tokenizer(), encode=encode, more=more)
    assert max(differences(path)) < QUANTIZED_LIMIT
