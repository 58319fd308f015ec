"""The forward for training has the module's numbers and the module's gradients."""

import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from slimrl.models.forward.attention import ATTENTION, AttentionPlan
from slimrl.models.forward.fused import can_fuse
from slimrl.models.forward.module import last_hidden
from slimrl.models.forward.training import training_hidden
from tests.models.forward.test_fused import Causal
from tests.models.native.cases import skip_without_kernels
from tests.tiny import tiny_module, with_random_norms
from tests.trainer.samples import policy_module


def computed(forward, module: nn.Module, seed: int = 1) -> tuple[Tensor, dict[str, Tensor]]:
    """The hidden states of one sequence, and the gradients of a random function of them."""
    generator = torch.Generator().manual_seed(seed)
    token_ids = torch.randint(300, (23,), generator=generator)
    plan: AttentionPlan = Causal()
    hidden_TD = forward(module, token_ids, torch.arange(23) + 4, plan)
    (hidden_TD.float() * torch.randn(hidden_TD.shape, generator=generator)).sum().backward()
    gradients = {name: p.grad.float() for name, p in module.named_parameters() if p.grad is not None}
    module.zero_grad(set_to_none=True)
    return hidden_TD.detach().float(), gradients


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_values_and_gradients_equal_the_modules(architecture):
    skip_without_kernels()
    module = policy_module(architecture)
    assert can_fuse(module)
    ours, our_gradients = computed(training_hidden, module)
    theirs, their_gradients = computed(last_hidden, module)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-5)
    assert our_gradients.keys() == their_gradients.keys()
    for name, expected in their_gradients.items():
        torch.testing.assert_close(
            our_gradients[name], expected, rtol=0, atol=1e-5 * float(expected.abs().max()), msg=name
        )


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_in_bfloat16_the_gradients_are_as_near_to_float32_as_the_modules(architecture):
    module, exact_module = (
        policy_module(architecture).to(torch.bfloat16),
        policy_module(architecture).to(torch.bfloat16).float(),
    )

    def distance(forward, seed: int) -> float:
        _, found = computed(forward, module, seed)
        _, exact = computed(last_hidden, exact_module, seed)
        return float(sum((found[name] - expected).square().sum() for name, expected in exact.items()))

    ours, plain = (sum(distance(forward, seed) for seed in range(6)) for forward in (training_hidden, last_hidden))
    assert ours < 1.25 * plain  # squares


def test_frozen_parameters_get_no_gradient():
    module = policy_module("llama")
    module.get_input_embeddings().weight.requires_grad_(False)
    frozen = module.model.layers[1].mlp
    frozen.requires_grad_(False)
    _, ours = computed(training_hidden, module)
    _, theirs = computed(last_hidden, module)
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        torch.testing.assert_close(ours[name], expected, rtol=0, atol=1e-5 * float(expected.abs().max()), msg=name)


class Adapted(nn.Linear):
    """A layer of an adapter library in the place of a linear layer."""


def biased() -> nn.Module:
    config = tiny_module("llama").config
    config.attention_bias = config.mlp_bias = True
    module = with_random_norms(LlamaForCausalLM(config))
    module.set_attn_implementation(ATTENTION)
    return module.eval()


def adapted() -> nn.Module:
    module = policy_module("llama")
    module.model.layers[1].mlp.up_proj = Adapted(32, 64, bias=False)
    return module


@pytest.mark.parametrize(
    "make", [lambda: policy_module("gemma3"), biased, adapted], ids=["gemma3", "biases", "adapted"]
)
def test_other_modules_run_as_they_are(make):
    module = make()
    assert not can_fuse(module)
    ours, our_gradients = computed(training_hidden, module)
    theirs, their_gradients = computed(last_hidden, module)
    assert torch.equal(ours, theirs)
    assert all(torch.equal(our_gradients[name], expected) for name, expected in their_gradients.items())
