"""Auxiliary losses beside the policy loss: a KL divergence from a reference, and a value head that computes advantages.

An auxiliary loss is called once per micro-batch. It returns a loss per token, weighted like the policy loss, and may
change the tokens before the policy loss reads them. To add another one, write a class here and a line in
`build_aux_losses`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from slimrl.config.loss import ResolvedLoss
from slimrl.trainer.critic import ValueHead, gae, value_loss
from slimrl.trainer.logprobs import target_logprobs
from slimrl.trainer.losses import TokenBatch, kl_to_reference
from slimrl.trainer.optim import Head
from slimrl.trainer.packing import Pack
from slimrl.trainer.parallel import Ranks
from slimrl.types import Metrics


@dataclass(frozen=True, slots=True)
class LossContext:
    """The input of an auxiliary loss: the micro-batch, the hidden states (N, D) from which its trained tokens are
    predicted, the reward of each of these tokens (N,), and the sampling temperature."""

    pack: Pack
    hidden_ND: Tensor
    reward_N: Tensor
    temperature: float


class AuxLoss(Protocol):
    """A loss that is added to the policy loss. `heads` are its own modules by name, trained with the policy."""

    heads: Mapping[str, Head]

    def __call__(self, context: LossContext, tokens: TokenBatch) -> tuple[TokenBatch, Tensor]:
        """Return the tokens as the policy loss will see them, and this loss per token (N,)."""

    def metrics(self, ranks: Ranks) -> Metrics:
        """Return the metrics over the micro-batches of all processes since the last call."""


@dataclass(slots=True)
class _Mean:
    """The running mean of numbers that arrive in batches."""

    total: Tensor | float = 0.0
    count: int = 0

    def add(self, values_N: Tensor) -> None:
        # The sum stays a tensor until the step is over, so nothing waits for a GPU in between.
        self.total = self.total + values_N.detach().double().sum()
        self.count += len(values_N)

    def take(self, ranks: Ranks) -> float:
        total, count = ranks.sums([float(self.total), self.count])
        self.total, self.count = 0.0, 0
        return total / max(1.0, count)


class ReferenceKL:
    """The loss beta KL(policy || reference). The weights of the reference are not trained."""

    heads: Mapping[str, Head] = {}

    def __init__(self, reference: nn.Module, beta: float) -> None:
        self._reference = reference.requires_grad_(False)
        self._beta = beta
        self._kl = _Mean()

    def __call__(self, context: LossContext, tokens: TokenBatch) -> tuple[TokenBatch, Tensor]:
        with torch.no_grad():
            reference_N, *_ = target_logprobs(self._reference, context.pack, context.temperature)
        kl_N = kl_to_reference(tokens.new_N, reference_N)
        self._kl.add(kl_N)
        return tokens, self._beta * kl_N

    def metrics(self, ranks: Ranks) -> Metrics:
        return {"loss/kl_reference": self._kl.take(ranks)}


@dataclass(slots=True)
class Critic:
    """The loss of a value head. It replaces the tokens' advantages by GAE's, computed from their rewards and the head's
    values (1506.02438)."""

    head: ValueHead
    loss: ResolvedLoss
    heads: Mapping[str, Head] = field(init=False)
    _error: _Mean = field(default_factory=_Mean)
    _value: _Mean = field(default_factory=_Mean)
    _square: _Mean = field(default_factory=_Mean)
    _return: _Mean = field(default_factory=_Mean)

    def __post_init__(self) -> None:
        self.heads = {"value_head": Head(self.head, self.loss.value_lr)}

    def __call__(self, context: LossContext, tokens: TokenBatch) -> tuple[TokenBatch, Tensor]:
        # The hidden states carry a gradient, so the value loss trains the model, not only the head.
        value_N = self.head(context.hidden_ND)
        gamma, gae_lambda = self.loss.gamma, self.loss.gae_lambda
        advantage_N, return_N = gae(context.reward_N, value_N, tokens.sequence_N, gamma, gae_lambda)
        loss_N = value_loss(value_N, return_N)
        # Means and squares can be summed over micro-batches and processes; variances cannot.
        for mean, values_N in (
            (self._error, loss_N),
            (self._value, value_N),
            (self._return, return_N),
            (self._square, return_N.square()),
        ):
            mean.add(values_N)
        return replace(tokens, advantage_N=advantage_N), self.loss.value_coef * loss_N

    def metrics(self, ranks: Ranks) -> Metrics:
        error, returned = self._error.take(ranks), self._return.take(ranks)
        # The share of the returns' variance that the values explain; times 2, because `value_loss` is half the square.
        variance = self._square.take(ranks) - returned**2
        explained = 1 - 2 * error / variance if variance > 1e-12 else 0.0
        return {"loss/value": error, "loss/value_mean": self._value.take(ranks), "loss/value_explained": explained}


def build_aux_losses(
    loss: ResolvedLoss, module: nn.Module, load_reference: Callable[[], nn.Module]
) -> tuple[AuxLoss, ...]:
    """Build the auxiliary losses of the loss settings. `load_reference` is called only if one of them needs it."""
    aux_losses: list[AuxLoss] = []
    if loss.kl_beta:
        aux_losses.append(ReferenceKL(load_reference(), loss.kl_beta))
    if loss.has_critic:
        config: Any = module.config
        aux_losses.append(Critic(ValueHead(config.hidden_size, next(module.parameters()).device), loss))
    return tuple(aux_losses)
