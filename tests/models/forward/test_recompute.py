"""Activation checkpointing: less is kept for the backward pass, and every number is the same."""

import pytest
import torch
from torch import Tensor, nn

from slimrl.config.model import LoraConfig
from slimrl.models.forward.fused import can_fuse
from slimrl.models.lora import adapt, keep_merged
from slimrl.trainer.logprobs import target_logprobs
from slimrl.trainer.packing import pack_samples
from tests.trainer.samples import CPU, policy_module, random_samples


def gradients_and_kept_bytes(module: nn.Module, recompute: bool) -> tuple[dict[str, Tensor], int]:
    (pack,) = pack_samples(random_samples(0), 10_000, CPU)
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.data_ptr()] = tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logprob_N, *_ = target_logprobs(module, pack, 1.0, recompute)
    logprob_N.square().sum().backward()
    return {name: p.grad for name, p in module.named_parameters() if p.grad is not None}, sum(kept.values())


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
def test_the_gradient_is_the_same_and_less_is_kept(family: str, rank: int) -> None:
    modules = [policy_module(family) for _ in range(2)]
    for module in modules if rank else ():
        adapt(module, LoraConfig(rank=rank), "tiny")
        if can_fuse(module):
            keep_merged(module)
    (plain, kept), (again, kept_again) = (gradients_and_kept_bytes(m, bool(n)) for n, m in enumerate(modules))
    assert plain.keys() == again.keys()
    assert all(torch.equal(again[name], gradient) for name, gradient in plain.items())
    assert kept_again < 0.7 * kept
    assert all("forward" not in vars(part) for part in modules[1].modules())  # nothing is left of it
