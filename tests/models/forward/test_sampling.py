"""The fast forwards for sampling compute what the module computes, and follow its changes."""

import pytest
import torch
from torch import Tensor, nn

from slimrl.inference.cache import CachePlan, SlotCache, Span
from slimrl.models.forward.fused import FusedForward, can_fuse
from slimrl.models.forward.module import Forward, ModuleForward
from slimrl.models.forward.tiled import TiledForward, can_tile, sampling_forward
from slimrl.models.lora import merge_parameters
from slimrl.models.native import ops
from tests.models.forward.forwards import adapted, logits, move
from tests.models.native.cases import skip_without_tiles, threads, wide_policy
from tests.tiny import tiny_module
from tests.trainer.samples import policy_module

CPU = torch.device("cpu")
FAMILIES = ("llama", "qwen2", "qwen3")
# Prompts and what follows them, of three sequences, the first of which is not in the first slot.
FORWARDS = ([(2, 0, 33), (0, 0, 5)], [(2, 33, 34), (0, 5, 6), (1, 0, 70)], [(0, 6, 7), (1, 70, 71), (2, 34, 38)])


@pytest.fixture
def tiles() -> None:
    skip_without_tiles()


def fused(module: nn.Module) -> FusedForward:
    if not can_fuse(module):
        pytest.skip("this CPU lacks oneDNN's packed products in that number format")
    return FusedForward(module)


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


def cached_logits(forward: Forward) -> Tensor:
    with torch.inference_mode():
        return torch.cat([forward.logits(hidden_ND) for hidden_ND in last_hidden(forward)])


@pytest.mark.parametrize("is_adapted", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_in_float32_the_fused_forward_equals_the_module(family: str, is_adapted: bool) -> None:
    module = move(adapted(policy_module(family))) if is_adapted else policy_module(family)
    assert isinstance(sampling_forward(module), FusedForward if can_fuse(module) else ModuleForward)
    near = 1e-4 if is_adapted else 2e-5
    torch.testing.assert_close(logits(fused(module)), logits(ModuleForward(module)), rtol=0, atol=near)


@pytest.mark.parametrize("family", FAMILIES)
def test_in_bfloat16_the_fused_forward_is_as_near_to_float32_as_the_module(family: str) -> None:
    """The error over a dozen sequences; with one, chance makes either forward better by a sixth."""
    module = policy_module(family).to(torch.bfloat16)
    ours, plain = (
        torch.stack([logits(way(module), seed) for seed in range(12)]).float() for way in (fused, ModuleForward)
    )
    module.to(torch.float32)
    exact = torch.stack([logits(ModuleForward(module), seed) for seed in range(12)])
    assert (ours - exact).norm() < 1.05 * (plain - exact).norm()


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_number_of_threads_changes_no_bit(number: int) -> None:
    forward = TiledForward(wide_policy("qwen3"))
    expected = last_hidden(forward)
    with threads(number):
        assert all(torch.equal(a, b) for a, b in zip(last_hidden(forward), expected, strict=True))


KINDS = {"fused": fused, "tiled": TiledForward}


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_changed_weights_biases_and_adapters_count_after_refresh_or_offload(family: str, kind: str) -> None:
    make = KINDS[kind]
    for module in (wide_policy(family), adapted(wide_policy(family))):
        forward = make(module)
        before = cached_logits(forward)
        for seed, take_over in enumerate((forward.refresh, forward.offload)):
            move(module, 0.05, seed)
            take_over()
            after = cached_logits(forward)
            merged = wide_policy(family)
            merged.load_state_dict(merge_parameters(module), strict=False)  # the head may be tied
            assert torch.equal(after, cached_logits(make(merged)))
            assert not torch.allclose(before, after, atol=1e-2)


@pytest.mark.usefixtures("tiles")
def test_the_fastest_forward_that_fits_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(isinstance(sampling_forward(wide_policy(family)), TiledForward) for family in FAMILIES)
    narrow: nn.Module = tiny_module("llama").to(torch.bfloat16)  # heads of 8
    for module in (narrow, wide_policy("llama").float(), wide_policy("gemma3")):
        assert not can_tile(module)
    assert isinstance(sampling_forward(narrow), FusedForward)
    assert isinstance(sampling_forward(policy_module("gemma3")), ModuleForward)
    module = wide_policy("llama")
    attention = module.get_decoder().layers[1].self_attn
    attention.q_proj = nn.Sequential(attention.q_proj)
    assert not can_tile(module)
    monkeypatch.setattr(ops, "packable", lambda weight: len(weight) != 320)  # the head's
    assert not can_tile(wide_policy("llama"))
