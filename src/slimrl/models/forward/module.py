"""Runs the two halves of a causal LM: the decoder (token ids to hidden states) and the LM head (to logits).

The LM head takes a fifth of a small model's time and nearly all of its memory. So the halves are separate, and the LM
head runs only on the positions that need logits. Works for the architectures that `models/check.py` accepts.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from slimrl.models.forward.attention import AttentionPlan, BlockPlan


def call_as_forward(module: nn.Module, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return `function(module, *arguments)`. The function runs as the module's forward, between the hooks in which a
    sharded module gathers and frees its parameters."""
    part: Any = module
    part.forward = partial(function, module)
    try:
        return part(*arguments)
    finally:
        del part.forward


def last_hidden(module: nn.Module, token_ids_T: Tensor, positions_T: Tensor, plan: AttentionPlan | None) -> Tensor:
    """Return the last hidden states (T, D) of one row of tokens at their positions. `plan` decides the attention."""
    decoder = module.get_decoder()  # type: ignore[operator]
    output = decoder(input_ids=token_ids_T[None], position_ids=positions_T[None], use_cache=False, attention_plan=plan)
    hidden: Tensor = output.last_hidden_state[0]
    return hidden


def head_logits(module: nn.Module, hidden_ND: Tensor) -> Tensor:
    """Return the logits (N, V) in the module's dtype, with Granite's divisor if the config has one."""
    logits: Tensor = module.get_output_embeddings()(hidden_ND)  # type: ignore[operator]
    # Not `to_dict()`, which deep-copies the config: this runs once per sampled token.
    divisor = vars(module.config).get("logits_scaling")
    return logits / divisor if divisor else logits


class Forward:
    """A forward for sampling, in two halves: the decoder and the LM head.

    Some subclasses compute products with copies of the weights. Call `refresh` after the module's weights have changed;
    `offload` frees the copies until the next call of the forward.
    """

    _products: Sequence[Any] = ()

    def last_hidden(self, token_ids_T: Tensor, positions_T: Tensor, plan: BlockPlan) -> Tensor:
        """Return the last hidden states (T, D)."""
        raise NotImplementedError

    def logits(self, hidden_ND: Tensor) -> Tensor:
        """Return the logits (N, V)."""
        raise NotImplementedError

    @torch.inference_mode()
    def refresh(self) -> None:
        """Copy the module's current weights."""
        for product in self._products:
            product.refresh()

    def offload(self) -> None:
        """Free the copies of the weights."""
        for product in self._products:
            product.offload()


class ModuleForward(Forward):
    """The module's own forward, for any architecture and any device."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def last_hidden(self, token_ids_T: Tensor, positions_T: Tensor, plan: AttentionPlan) -> Tensor:
        return last_hidden(self._module, token_ids_T, positions_T, plan)

    def logits(self, hidden_ND: Tensor) -> Tensor:
        return head_logits(self._module, hidden_ND)

    def addresses(self) -> tuple[int, ...]:
        """Return the memory addresses of all parameters."""
        return tuple(parameter.data_ptr() for parameter in self._module.parameters())
