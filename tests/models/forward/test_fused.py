"""The fused forward computes what the module computes."""

import pytest
import torch
from torch import nn

from slimrl.models.forward.attention import LayerInputs, plain_causal
from slimrl.models.forward.fused import FusedForward, can_fuse
from slimrl.models.forward.module import ModuleForward
from slimrl.models.forward.tiled import sampling_forward
from tests.trainer.samples import policy_module


class Causal:
    """The plan of one sequence."""

    def attend(self, inputs: LayerInputs) -> torch.Tensor:
        return plain_causal(inputs)


def fused(module: nn.Module) -> FusedForward:
    if not can_fuse(module):
        pytest.skip("this CPU lacks oneDNN's packed products in that number format")
    return FusedForward(module)


def logits(forward: FusedForward | ModuleForward, seed: int = 1) -> torch.Tensor:
    token_ids = torch.randint(300, (23,), generator=torch.Generator().manual_seed(seed))
    with torch.inference_mode():
        return forward.logits(forward.last_hidden(token_ids, torch.arange(23) + 4, Causal()))


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_it_equals_the_module(architecture):
    module = policy_module(architecture)
    torch.testing.assert_close(logits(fused(module)), logits(ModuleForward(module)), rtol=0, atol=2e-5)


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_in_bfloat16_it_is_as_near_to_float32_as_the_module(architecture):
    """The error over a dozen sequences; with one, chance makes either forward better by a sixth."""
    module = policy_module(architecture).to(torch.bfloat16)
    ours, plain = (
        torch.stack([logits(way(module), seed) for seed in range(12)]).float() for way in (fused, ModuleForward)
    )
    module.to(torch.float32)
    exact = torch.stack([logits(ModuleForward(module), seed) for seed in range(12)])
    assert (ours - exact).norm() < 1.05 * (plain - exact).norm()


def test_new_weights_are_taken_over_by_refresh():
    module = policy_module("llama")
    forward = fused(module)
    before = logits(forward)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
    forward.refresh()
    torch.testing.assert_close(logits(forward), logits(ModuleForward(module)), rtol=0, atol=2e-5)
    assert not torch.allclose(before, logits(forward), atol=1e-2)


def test_other_architectures_run_as_they_are():
    module = policy_module("qwen3")
    assert isinstance(sampling_forward(module), FusedForward if can_fuse(module) else ModuleForward)
    assert isinstance(sampling_forward(policy_module("gemma3")), ModuleForward)
