"""The formulas of bytes: against numbers worked out by hand, and against what real modules allocate."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from packaging.version import Version
from torch import Tensor, nn
from transformers import Qwen2Config, Qwen3Config, Qwen3ForCausalLM

from benchmarks.speed.gpu_memory import SHAPES
from packages.tools.tests.plan.made import MODEL, settings
from slimrl.config.model import LoraConfig
from slimrl.config.train import OptimConfig
from slimrl.inference.engine import Engine
from slimrl.models.forward.attention import ATTENTION
from slimrl.models.forward.fused import can_fuse
from slimrl.models.forward.training import training_hidden
from slimrl.models.lora import adapt, keep_merged
from slimrl.models.native import ops
from slimrl.trainer.attention import PackedPlan
from slimrl.trainer.optim import MasterAdamW
from slimrl.trainer.packing import Pack, pack_samples
from slimrl.types import SamplingParams
from slimrl_tools.plan.memory import Compute, Demand, process
from slimrl_tools.plan.shape import Shape, build_module, shape_of
from slimrl_tools.plan.workload import Rows, sample_of
from tests.tiny import tiny_module

GPU_MEMORY = Path(__file__).parents[4] / "benchmarks" / "results" / "gpu_memory.json"
HALF = Compute(2, "cpu", has_kernels=True, has_tiles=True)
FULL = Compute(4, "cpu", has_kernels=True)
MASTERS, MOMENTS = "masters of the weights (float32)", "moments of AdamW"
COPY = "the engine's copy of the weights"
RECOMPUTE = "--trainer.activation_checkpointing", "true"


def by_hand() -> Shape:
    """2 layers, D = 8, F = 16, 2 heads of 4 on 1 of keys, V = 10, tied."""
    matrices = tuple(
        (f"layers.{layer}.{name}", inputs, outputs)
        for layer in range(2)
        for name, inputs, outputs in (
            ("self_attn.q_proj", 8, 8),
            ("self_attn.k_proj", 8, 4),
            ("self_attn.v_proj", 8, 4),
            ("self_attn.o_proj", 8, 8),
            ("mlp.gate_proj", 8, 16),
            ("mlp.up_proj", 8, 16),
            ("mlp.down_proj", 16, 8),
        )
    )
    # The matrices have 2 (64 + 32 + 32 + 64 + 3 * 128) = 1,152 weights, the head 80, the norms 5 * 8 = 40.
    return Shape("hand", "llama", 2, 8, 16, 8, 4, 2, 10, 1272, 1272, True, matrices)


def demand(shape: Shape, compute: Compute, *flags: str, packs: int = 1) -> Demand:
    """What a run asks for, with 40 tokens in a sequence and 3 slots unless it says otherwise."""
    fixed = ["--seq_len", "40", "--orchestrator.sampling.max_tokens", "8", "--inference.max_slots", "3"]
    return Demand(settings(MODEL, *fixed, *flags), shape, compute, Rows(packs, 10, 10, 10))


def sizes(asked: Demand) -> dict[str, float]:
    """The bytes of all parts by name."""
    parts = *asked.weight_parts(), *asked.training_parts(), *asked.sampling_parts()
    return {part.name: part.bytes for part in parts}


def test_sizes_are_those_worked_out_by_hand() -> None:
    shape = by_hand()
    half, full = sizes(demand(shape, HALF)), sizes(demand(shape, FULL))
    assert (shape.linear, shape.head) == (1152, 80)
    assert half["weights"] == 2544
    assert (half[MASTERS], half[MOMENTS]) == (2544, 10176)
    assert (full[MASTERS], full[MOMENTS]) == (0, 10176)
    # One pack: 2 bytes of 1,192 weights, 4 of the head's; two packs: 4 bytes of all.
    assert half["gradients"] == 2 * 1192 + 4 * 80
    two = sizes(demand(shape, HALF, packs=2))
    assert two["gradients"] == two["whole masters for a checkpoint"] == 4 * 1272
    # 2 b L (slots + 1) C K = 2 * 2 * 2 * 4 * 64 * 4: the capacity of 40 is rounded up to two blocks of 32.
    assert half["KV cache"] == 8192
    assert half[COPY] == 2 * (1152 + 80)
    # A layer keeps 2 b D + b (2 Q + 2 K) + 4 (2 + heads) = 32 + 48 + 16 bytes a token; beside the layers 4 b D = 64.
    assert demand(shape, HALF).activations(10) == 10 * (2 * 96 + 64)
    assert demand(shape, HALF, *RECOMPUTE).activations(10) == 10 * (2 * 16 + 96 + 64)


def test_an_adapter_trains_r_times_inputs_and_outputs() -> None:
    shape = by_hand()
    lora = LoraConfig(rank=2, targets=["q_proj", "down_proj"])
    assert shape.num_trained(lora) == 2 * 2 * ((8 + 8) + (16 + 8))
    assert shape.num_trained(LoraConfig(rank=1)) == 2 * (16 + 12 + 12 + 16 + 24 + 24 + 24)
    assert shape.num_trained(LoraConfig()) == shape.weights


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
def test_the_shape_on_the_meta_device_is_that_of_the_module(family: str) -> None:
    module: Any = tiny_module(family)
    real, meta = shape_of(module), meta_shape(module.config)
    assert real.weights == sum(parameter.numel() for parameter in module.parameters()) == meta.weights
    assert (real.matrices, real.head, real.active, real.key) == (meta.matrices, meta.head, meta.active, meta.key)
    assert real.key == 16  # two heads of keys of 8
    # Before 5.4, transformers computes no rotary positions on the meta device, and the plan takes an estimate.
    assert meta.saved > 0 or Version(transformers.__version__) < Version("5.4")


def meta_shape(config: Any) -> Shape:
    """The shape of a config's module, as `read_shape` reads it."""
    with torch.device("meta"):
        module = build_module(config, torch.bfloat16)
    module.tie_weights()
    return shape_of(module)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_optimizer_holds_what_is_foretold(dtype: torch.dtype) -> None:
    module: Any = tiny_module("llama").to(dtype)
    trained = MasterAdamW(module, OptimConfig())._trained.values()
    low = sum(nbytes_of(one._low) for one in trained if one._low is not None)
    moments = sum(nbytes_of(t) for one in trained for t in (one._mean, one._square))
    found = sizes(demand(shape_of(module), HALF if dtype == torch.bfloat16 else FULL))
    assert (low, moments) == (found[MASTERS], found[MOMENTS])


def test_an_adapter_holds_what_is_foretold() -> None:
    pytest.importorskip("peft")
    module: Any = tiny_module("llama").to(torch.bfloat16)
    shape, before = shape_of(module), nbytes(module)
    adapt(module, LoraConfig(rank=4), "")
    if can_fuse(module):
        keep_merged(module)
    foretold = sizes(demand(shape, Compute(2, "cpu", can_fuse(module)), "--model.lora.rank", "4"))
    assert nbytes(module) - before == foretold["adapter"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_engine_holds_what_is_foretold(dtype: torch.dtype) -> None:
    module: Any = wide_module().to(dtype)
    engine = Engine(module, frozenset(), 5, 70)
    engine.submit([1, 2, 3], SamplingParams(max_tokens=2), lambda sampled: False)
    engine.step()
    held = sum(nbytes_of(part) for layer in engine._cache._layers.values() for part in layer)
    compute = Compute(2 if dtype == torch.bfloat16 else 4)
    foretold = sizes(demand(shape_of(module), compute, "--inference.max_slots", "5", "--seq_len", "70"))
    assert held == foretold["KV cache"]
    if not can_fuse(module):
        pytest.skip("there are no kernels here, so there are no copies")
    if ops.has_tiles(torch.empty(0, dtype=dtype)):
        forward: Any = engine._forward
        copied = sum(nbytes_of(product.panels) for product in forward._products)
        assert copied == pytest.approx(foretold[COPY], rel=0.1)  # whole panels of 32 outputs


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("recompute", [False, True])
def test_activations_are_those_that_autograd_keeps(dtype: torch.dtype, recompute: bool) -> None:
    module: Any = wide_module(layers=6).to(dtype)
    if not can_fuse(module):
        pytest.skip("there are no kernels here")
    shape = shape_of(module)
    has_tiles = ops.has_tiles(torch.empty(0, dtype=dtype))
    compute = Compute(2 if dtype == torch.bfloat16 else 4, "cpu", True, has_tiles)
    pack = row_of(1024)
    num = len(pack.token_ids_T)
    found, expected = (
        kept_bytes(module, pack, recompute),
        demand(shape, compute, *(RECOMPUTE if recompute else ())).activations(num),
    )
    if recompute:  # the inputs of six layers and of the last norm; what a layer makes anew comes in the backward pass
        assert found == pytest.approx(7 * compute.bytes * shape.hidden * num, rel=0.05)
        assert found < expected
    else:  # beside the layers it foretells what the embeddings, the last norm and the trained positions keep
        assert found == pytest.approx(expected, rel=0.2)


@pytest.mark.slow
def test_a_step_on_a_gpu_needs_what_fake_tensors_count() -> None:
    """Against `gpu_memory.json`: all of a step's tensors on the device `cuda`, counted one by one."""
    for found in json.loads(GPU_MEMORY.read_text(encoding="utf-8"))["results"]:
        rows = Rows(1, found["row_tokens"], found["trained_tokens"], found["row_tokens"])
        shape, compute = meta_shape(Qwen2Config(**SHAPES[found["shape"]])), Compute(2, "cuda", has_kernels=False)
        asked = Demand(settings(MODEL), shape, compute, rows)
        parts = [part for part in (*asked.weight_parts(), *asked.training_parts()) if part.phase != "saving"]
        state = sum(part.bytes for part in parts if part.phase == "always")
        assert state == pytest.approx(found["state_bytes"], rel=0.02)
        assert process("one process", "cuda:0", parts, 0.0).tensors == pytest.approx(found["peak_bytes"], rel=0.05)


def wide_module(layers: int = 2) -> nn.Module:
    """A small module whose shapes all kernels take: heads of 64."""
    config = Qwen3Config(
        vocab_size=320,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        tie_word_embeddings=True,
        attn_implementation=ATTENTION,
    )
    module: nn.Module = Qwen3ForCausalLM(config).eval()
    return module


def row_of(length: int) -> Pack:
    samples = [sample_of([n, *range(1, length // 4)], [False] * 4 + [True] * (length // 4 - 4)) for n in range(4)]
    (pack,) = pack_samples(samples, 1 << 30, torch.device("cpu"))
    return pack


def kept_bytes(module: nn.Module, pack: Pack, recompute: bool) -> int:
    """The bytes of the storages that autograd keeps of a forward, without the module's own."""
    own = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        if (address := tensor.untyped_storage().data_ptr()) not in own:
            kept[address] = tensor
        return tensor

    tokens = pack.token_ids_T % 320
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        hidden = training_hidden(module, tokens, pack.positions_T, PackedPlan(pack), recompute)
    assert hidden.requires_grad
    return sum(map(nbytes_of, kept.values()))


def nbytes_of(tensor: Tensor) -> int:
    return int(tensor.untyped_storage().nbytes())


def nbytes(module: nn.Module) -> int:
    tensors: Sequence[Tensor] = [*module.parameters(), *module.buffers()]
    return sum({tensor.data_ptr(): tensor.nbytes for tensor in tensors}.values())
