"""Forwards of tiny models on a row of tokens, and tiny models with adapters and with weights that have moved."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from slimrl.config.model import LoraConfig
from slimrl.models.forward.attention import LayerInputs, plain_causal
from slimrl.models.forward.fused import can_fuse
from slimrl.models.forward.module import Forward
from slimrl.models.lora import adapt, keep_merged, refresh_merged


class Causal:
    """The plan of one sequence."""

    def attend(self, inputs: LayerInputs) -> Tensor:
        return plain_causal(inputs)


def logits(forward: Forward, seed: int = 1) -> Tensor:
    token_ids = torch.randint(300, (23,), generator=torch.Generator().manual_seed(seed))
    plan: Any = Causal()
    with torch.inference_mode():
        return forward.logits(forward.last_hidden(token_ids, torch.arange(23) + 4, plan))


def computed(forward: Callable[..., Tensor], module: nn.Module, seed: int = 1) -> tuple[Tensor, dict[str, Tensor]]:
    """The hidden states of one sequence, and the gradients of a random function of them."""
    generator = torch.Generator().manual_seed(seed)
    token_ids = torch.randint(300, (23,), generator=generator)
    hidden_TD = forward(module, token_ids, torch.arange(23) + 4, Causal())
    (hidden_TD.float() * torch.randn(hidden_TD.shape, generator=generator)).sum().backward()
    gradients = {name: p.grad.float() for name, p in module.named_parameters() if p.grad is not None}
    module.zero_grad(set_to_none=True)
    return hidden_TD.detach().float(), gradients


def adapted(module: nn.Module, targets: Sequence[str] = ("all-linear",)) -> nn.Module:
    adapt(module, LoraConfig(rank=4, targets=list(targets)), "tiny")
    if can_fuse(module):
        keep_merged(module)
    return module


def move(module: nn.Module, size: float = 0.3, seed: int = 1) -> nn.Module:
    """Change the trained weights, as training does."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=size)
    refresh_merged(module)
    return module
