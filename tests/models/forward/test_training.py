"""The forward for training has the module's numbers and the module's gradients, with adapters and without."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from slimrl.models.forward.attention import ATTENTION
from slimrl.models.forward.fused import can_fuse
from slimrl.models.forward.module import last_hidden
from slimrl.models.forward.training import training_hidden
from tests.models.forward.forwards import adapted, computed, move
from tests.models.native.cases import skip_without_kernels
from tests.tiny import tiny_module, with_random_norms
from tests.trainer.samples import policy_module

FAMILIES = ["llama", "qwen2", "qwen3"]


def frozen() -> nn.Module:
    module = policy_module("llama")
    for part in (module.get_input_embeddings(), module.model.layers[1].mlp):
        part.requires_grad_(False)
    return module


MODULES = {
    **{family: partial(policy_module, family) for family in FAMILIES},
    "frozen parts": frozen,
    "llama with an adapter": lambda: move(adapted(policy_module("llama"))),
    "qwen3 with an adapter": lambda: move(adapted(policy_module("qwen3"))),
    "some matrices with adapters": lambda: move(adapted(policy_module("llama"), ["v_proj", "mlp.down_proj"])),
}


@pytest.mark.parametrize("name", MODULES)
def test_values_and_gradients_equal_the_modules(name: str) -> None:
    skip_without_kernels()
    module = MODULES[name]()
    assert can_fuse(module)
    ours, our_gradients = computed(training_hidden, module)
    theirs, their_gradients = computed(last_hidden, module)
    near = 1e-4 if "adapter" in name else 1e-5
    torch.testing.assert_close(ours, theirs, rtol=0, atol=2 * near)
    trained = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
    # The head of these families is tied or not computed here; the gradient of a large frozen matrix is never made.
    assert our_gradients.keys() == their_gradients.keys() == trained - {"lm_head.weight"}
    for name, expected in their_gradients.items():
        assert expected.any()
        torch.testing.assert_close(
            our_gradients[name], expected, rtol=0, atol=near * float(expected.abs().max()), msg=name
        )


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_in_bfloat16_the_gradients_are_as_near_to_float32_as_the_modules(family: str) -> None:
    module, exact_module = (policy_module(family).to(torch.bfloat16) for _ in range(2))
    exact_module.float()

    def distance(forward: Callable[..., Tensor], seed: int) -> float:
        _, found = computed(forward, module, seed)
        _, exact = computed(last_hidden, exact_module, seed)
        return float(sum((found[name] - expected).square().sum() for name, expected in exact.items()))

    ours, plain = (sum(distance(forward, seed) for seed in range(6)) for forward in (training_hidden, last_hidden))
    assert ours < 1.25 * plain  # squares


@pytest.mark.slow
@pytest.mark.parametrize("has_adapter", [False, True])
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
def test_recomputed_activations_give_the_same_gradient_and_less_is_kept(family: str, has_adapter: bool) -> None:
    kept: list[dict[int, int]] = [{}, {}]
    gradients = []
    for sizes, recompute in zip(kept, (False, True), strict=True):
        module = adapted(policy_module(family)) if has_adapter else policy_module(family)

        def keep(tensor: Tensor, sizes: dict[int, int] = sizes) -> Tensor:
            sizes[tensor.data_ptr()] = tensor.nbytes
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            gradients.append(computed(partial(training_hidden, recompute=recompute), module)[1])
        assert all("forward" not in vars(part) for part in module.modules())  # nothing is left of it
    assert gradients[0].keys() == gradients[1].keys()
    assert all(torch.equal(gradients[1][name], gradient) for name, gradient in gradients[0].items())
    assert sum(kept[1].values()) < 0.7 * sum(kept[0].values())


class Adapted(nn.Linear):
    """A layer of an adapter library in the place of a linear layer."""


def biased() -> nn.Module:
    config = tiny_module("llama").config
    config.attention_bias = config.mlp_bias = True
    module = with_random_norms(LlamaForCausalLM(config))
    module.set_attn_implementation(ATTENTION)
    return module.eval()


def with_another_layer() -> nn.Module:
    module = policy_module("llama")
    module.model.layers[1].mlp.up_proj = Adapted(32, 64, bias=False)
    return module


@pytest.mark.parametrize(
    "make", [partial(policy_module, "gemma3"), biased, with_another_layer], ids=["gemma3", "biases", "another layer"]
)
def test_other_modules_run_as_they_are(make: Callable[[], nn.Module]) -> None:
    module = make()
    assert not can_fuse(module)
    ours, our_gradients = computed(training_hidden, module)
    theirs, their_gradients = computed(last_hidden, module)
    assert torch.equal(ours, theirs)
    assert all(torch.equal(our_gradients[name], expected) for name, expected in their_gradients.items())
