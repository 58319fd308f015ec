"""The tiled forward computes what the module computes, and follows its changes."""

import pytest
import torch
from torch import Tensor, nn

from slimrl.config.model import LoraConfig
from slimrl.errors import UserError
from slimrl.inference.cache import CachePlan, SlotCache, Span
from slimrl.models.forward.fused import FusedForward
from slimrl.models.forward.module import Forward, ModuleForward
from slimrl.models.forward.tiled import TiledForward, can_tile, sampling_forward
from slimrl.models.lora import adapt, keep_merged, merge_parameters, refresh_merged
from slimrl.models.native import ops
from tests.models.native.cases import random, skip_without_tiles, threads, wide_policy
from tests.tiny import tiny_module

CPU = torch.device("cpu")
FAMILIES = ("llama", "qwen2", "qwen3")
# Prompts and what follows them, of three sequences, the first of which is not in the first slot.
FORWARDS = ([(2, 0, 33), (0, 0, 5)], [(2, 33, 34), (0, 5, 6), (1, 0, 70)], [(0, 6, 7), (1, 70, 71), (2, 34, 38)])


@pytest.fixture(autouse=True)
def tiles() -> None:
    skip_without_tiles()


def last_hidden(forward: Forward) -> list[Tensor]:
    """The hidden states of prompts, of single tokens, and of both together."""
    cache, found = SlotCache(3, 96), []
    for spans in FORWARDS:
        positions = [position for _, start, end in spans for position in range(start, end)]
        token_ids = [(7 * position + 31 * slot) % 300 for slot, start, end in spans for position in range(start, end)]
        plan = CachePlan(cache, [Span(*span) for span in spans], CPU)
        with torch.inference_mode():
            found.append(forward.last_hidden(torch.tensor(token_ids), torch.tensor(positions), plan))
    return found


def logits(forward: Forward) -> Tensor:
    with torch.inference_mode():
        return torch.cat([forward.logits(hidden_ND) for hidden_ND in last_hidden(forward)])


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_as_near_to_float32_as_the_module(family: str) -> None:
    module = wide_policy(family)
    ours, fused, plain = (logits(kind(module)).float() for kind in (TiledForward, FusedForward, ModuleForward))
    exact = logits(ModuleForward(module.float()))
    assert (ours - exact).norm() < 1.1 * (plain - exact).norm()
    assert (ours - exact).norm() < 1.1 * (fused - exact).norm()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_number_of_threads_changes_no_bit(number: int) -> None:
    forward = TiledForward(wide_policy("qwen3"))
    expected = last_hidden(forward)
    with threads(number):
        assert all(torch.equal(a, b) for a, b in zip(last_hidden(forward), expected, strict=True))


@pytest.mark.parametrize("family", FAMILIES)
def test_changed_weights_and_biases_count_after_refresh_or_offload(family: str) -> None:
    module = wide_policy(family)
    forward = TiledForward(module)
    before = logits(forward)
    for number, take_over in enumerate((forward.refresh, forward.offload)):
        with torch.no_grad():
            for place, parameter in enumerate(module.parameters()):
                parameter.add_(random(*parameter.shape, seed=place + number), alpha=0.05)
        take_over()
        after = logits(forward)
        assert torch.equal(after, logits(TiledForward(module)))
        assert not torch.allclose(before, after, atol=1e-2)


@pytest.mark.parametrize("family", FAMILIES)
def test_quantized_weights_change_little_and_are_refreshed(family: str) -> None:
    module = wide_policy(family)
    plain, quantized = logits(TiledForward(module)).float(), TiledForward(module, quantized=True)
    before = logits(quantized).float()
    assert 0 < (before - plain).norm() < 0.2 * plain.norm()  # the weights are random, and so little remains of much
    with torch.no_grad():
        for place, parameter in enumerate(module.parameters()):
            parameter.add_(random(*parameter.shape, seed=place), alpha=0.05)
    quantized.refresh()
    assert torch.equal(logits(quantized), logits(TiledForward(module, quantized=True)))


def test_what_cannot_be_quantized_is_refused_and_says_why() -> None:
    assert isinstance(sampling_forward(wide_policy("llama"), "int8"), TiledForward)
    for module in (wide_policy("llama").float(), wide_policy("gemma3"), tiny_module("llama").to(torch.bfloat16)):
        with pytest.raises(UserError, match=r"quantization = int8.*AMX.*Leave `quantization` at `none`"):
            sampling_forward(module, "int8")


def test_it_is_taken_where_every_shape_fits() -> None:
    assert all(isinstance(sampling_forward(wide_policy(family)), TiledForward) for family in FAMILIES)
    narrow: nn.Module = tiny_module("llama").to(torch.bfloat16)  # heads of 8
    assert not can_tile(narrow) and not can_tile(wide_policy("llama").float()) and not can_tile(wide_policy("gemma3"))
    assert isinstance(sampling_forward(narrow), FusedForward)


@pytest.mark.parametrize("family", FAMILIES)
def test_adapters_count_after_refresh(family: str) -> None:
    module, merged = wide_policy(family), wide_policy(family)
    adapt(module, LoraConfig(rank=4), "wide")
    keep_merged(module)
    forward = TiledForward(module)
    before = logits(forward)
    assert torch.equal(before, logits(TiledForward(merged)))
    with torch.no_grad():
        for place, parameter in enumerate(module.parameters()):
            if parameter.requires_grad:
                parameter.add_(random(*parameter.shape, seed=place), alpha=0.05)
    refresh_merged(module)
    forward.refresh()
    merged.load_state_dict(merge_parameters(module), strict=False)  # the head may be tied
    assert torch.equal(logits(forward), logits(TiledForward(merged)))
    assert not torch.allclose(before, logits(forward), atol=1e-2)


def test_a_layer_of_another_kind_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    module = wide_policy("llama")
    attention = module.get_decoder().layers[1].self_attn
    attention.q_proj = nn.Sequential(attention.q_proj)
    assert not can_tile(module)
    monkeypatch.setattr(ops, "packable", lambda weight: len(weight) != 320)  # the head's
    assert not can_tile(wide_policy("llama"))
