"""The two halves of a causal LM's forward: tokens to hidden states, hidden states to logits.

Kept apart so that the LM head, a fifth of a small model's work and nearly all of its memory, runs only on the positions
that need it. For the architectures that `models/check.py` accepts.
"""

from typing import Protocol

import torch
from torch import Tensor, nn

from slimrl.models.forward.attention import AttentionPlan, BlockPlan


def last_hidden(module: nn.Module, token_ids_T: Tensor, positions_T: Tensor, plan: AttentionPlan | None) -> Tensor:
    """Final hidden states (T, D) of one flat row of tokens, each at its own position; `plan` says who sees whom."""
    decoder = module.get_decoder()  # type: ignore[operator]
    output = decoder(input_ids=token_ids_T[None], position_ids=positions_T[None], use_cache=False, attention_plan=plan)
    hidden: Tensor = output.last_hidden_state[0]
    return hidden


def head_logits(module: nn.Module, hidden_ND: Tensor) -> Tensor:
    """Logits (N, V) in the module's dtype, with the final soft-capping of Gemma 2 where the config asks for it."""
    logits: Tensor = module.get_output_embeddings()(hidden_ND)  # type: ignore[operator]
    # Not `to_dict()`, which copies the config deeply: this runs once for every token that is sampled.
    cap: float | None = vars(module.config).get("final_logit_softcapping")
    return logits if cap is None else torch.tanh(logits / cap) * cap


class Forward(Protocol):
    """The two halves for sampling. `refresh` says that the module's weights have changed, for those who keep copies,
    and `offload` that they may let go of these until the next call."""

    def last_hidden(self, token_ids_T: Tensor, positions_T: Tensor, plan: BlockPlan) -> Tensor: ...

    def logits(self, hidden_ND: Tensor) -> Tensor: ...

    def refresh(self) -> None: ...

    def offload(self) -> None: ...


class ModuleForward:
    """The module itself: any architecture, any device."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def last_hidden(self, token_ids_T: Tensor, positions_T: Tensor, plan: AttentionPlan) -> Tensor:
        return last_hidden(self._module, token_ids_T, positions_T, plan)

    def logits(self, hidden_ND: Tensor) -> Tensor:
        return head_logits(self._module, hidden_ND)

    def addresses(self) -> tuple[int, ...]:
        """Where the weights lie."""
        return tuple(parameter.data_ptr() for parameter in self._module.parameters())

    def refresh(self) -> None:
        """Nothing to do: there is no copy."""

    def offload(self) -> None:
        """Nothing to let go of."""
