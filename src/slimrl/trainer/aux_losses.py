"""What may stand beside the policy loss: a KL divergence from a reference, a value head with advantages of its own.

An auxiliary loss is called once for every micro-batch. It gives each token a loss, which is weighed as the policy's is,
and may change what the policy loss sees. Another one is a class here and a line in `build_aux_losses`.
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
    """What a term may look at: the micro-batch, the hidden states (N, D) before its trained tokens, the temperature."""

    pack: Pack
    hidden_ND: Tensor
    temperature: float


class AuxLoss(Protocol):
    """`heads` are modules of its own that are trained with the policy, by name."""

    heads: Mapping[str, Head]

    def __call__(self, context: LossContext, tokens: TokenBatch) -> tuple[TokenBatch, Tensor]:
        """The tokens as the policy loss is to see them, and this term's own loss of each (N,)."""

    def metrics(self, ranks: Ranks) -> Metrics:
        """Of all processes' micro-batches since the last call."""


@dataclass(slots=True)
class _Mean:
    """Of numbers that come in batches."""

    total: float = 0.0
    count: int = 0

    def add(self, values_N: Tensor) -> None:
        self.total += float(values_N.detach().double().sum())
        self.count += len(values_N)

    def take(self, ranks: Ranks) -> float:
        total, count = ranks.sums([self.total, self.count])
        self.total, self.count = 0.0, 0
        return total / max(1.0, count)


class ReferenceKL:
    """+ beta KL(policy || reference), with the reference's weights left as they are."""

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
    """A value head: the tokens' advantages become GAE of what they earned, and its error is a loss."""

    head: ValueHead
    loss: ResolvedLoss
    heads: Mapping[str, Head] = field(init=False)
    _error: _Mean = field(default_factory=_Mean)
    _value: _Mean = field(default_factory=_Mean)
    _spread: _Mean = field(default_factory=_Mean)
    _return: _Mean = field(default_factory=_Mean)

    def __post_init__(self) -> None:
        self.heads = {"value_head": Head(self.head, self.loss.value_lr)}

    def __call__(self, context: LossContext, tokens: TokenBatch) -> tuple[TokenBatch, Tensor]:
        value_N = self.head(context.hidden_ND)
        gamma, gae_lambda = self.loss.gamma, self.loss.gae_lambda
        advantage_N, return_N = gae(tokens.advantage_N, value_N, tokens.sequence_N, gamma, gae_lambda)
        loss_N = value_loss(value_N, return_N)
        for mean, values_N in (
            (self._error, loss_N),
            (self._value, value_N),
            (self._return, return_N),
            (self._spread, return_N.square()),
        ):
            mean.add(values_N)
        return replace(tokens, advantage_N=advantage_N), self.loss.value_coef * loss_N

    def metrics(self, ranks: Ranks) -> Metrics:
        error, returned = self._error.take(ranks), self._return.take(ranks)
        variance = self._spread.take(ranks) - returned**2
        explained = 1 - 2 * error / variance if variance > 1e-12 else 0.0
        return {"loss/value": error, "loss/value_mean": self._value.take(ranks), "loss/value_explained": explained}


def build_aux_losses(
    loss: ResolvedLoss, module: nn.Module, load_reference: Callable[[], nn.Module]
) -> tuple[AuxLoss, ...]:
    """The terms that the loss names, for a policy."""
    aux_losses: list[AuxLoss] = []
    if loss.kl_beta:
        aux_losses.append(ReferenceKL(load_reference(), loss.kl_beta))
    if loss.has_critic:
        config: Any = module.config
        aux_losses.append(Critic(ValueHead(config.hidden_size, next(module.parameters()).device), loss))
    return tuple(aux_losses)
