"""Auxiliary losses, which are added to the policy loss: a KL divergence from a reference, and the loss of a value head.

An auxiliary loss is called once per micro-batch. It returns a loss per token; the caller weights these losses like the
policy loss. It may replace the tokens' advantages before the policy loss reads them. To add an auxiliary loss, write a
class here and a line in `build_aux_losses`. Index suffix _N: the trained tokens of a micro-batch, concatenated, as in
`losses.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from slimrl.config.loss import ResolvedLoss
from slimrl.models.device import to_device
from slimrl.trainer.logprobs import target_logprobs
from slimrl.trainer.losses import TokenBatch, kl_to_reference
from slimrl.trainer.optim import Head
from slimrl.trainer.packing import Pack
from slimrl.trainer.parallel import Ranks
from slimrl.types import Metrics


class AuxLoss(Protocol):
    """A loss that is added to the policy loss. `heads` are the additional modules that the loss trains, by name."""

    heads: Mapping[str, Head]

    def __call__(
        self, tokens: TokenBatch, pack: Pack, hidden_ND: Tensor, reward_N: Tensor, temperature: float, /
    ) -> tuple[TokenBatch, Tensor]:
        """Return the `tokens` for the policy loss, possibly changed, and the auxiliary loss of each token (N,).
        `hidden_ND` are the hidden states that predict the tokens. `temperature` is the sampling temperature."""

    def metrics(self, ranks: Ranks) -> Metrics:
        """Return the metrics over the micro-batches of all processes since the last call."""


class _Means:
    """Running means of per-token values. The values are added in batches."""

    def __init__(self) -> None:
        self._totals: Sequence[Tensor | float] = ()
        self._count = 0

    def add(self, *columns: Tensor) -> None:
        # The sums remain tensors until the end of the step, so adding values does not wait for a GPU.
        sums = [values_N.detach().double().sum() for values_N in columns]
        before = self._totals or [0.0] * len(sums)
        self._totals = [total + values for total, values in zip(before, sums, strict=True)]
        self._count += len(columns[0])

    def take(self, ranks: Ranks) -> list[float]:
        """Return the means over all processes, and reset them. Every process must have received at least one batch."""
        *totals, count = ranks.sums([*map(float, self._totals), self._count])
        self._totals, self._count = (), 0
        return [total / max(1.0, count) for total in totals]


class ReferenceKL:
    """The auxiliary loss beta KL(policy || reference). The reference is not trained."""

    heads: Mapping[str, Head] = {}

    def __init__(self, reference: nn.Module, beta: float) -> None:
        self._reference = reference.requires_grad_(False)
        self._beta = beta
        self._kl = _Means()

    def __call__(
        self, tokens: TokenBatch, pack: Pack, _hidden_ND: Tensor, _reward_N: Tensor, temperature: float
    ) -> tuple[TokenBatch, Tensor]:
        with torch.no_grad():
            reference_N, *_ = target_logprobs(self._reference, pack, temperature)
        kl_N = kl_to_reference(tokens.new_N, reference_N)
        self._kl.add(kl_N)
        return tokens, self._beta * kl_N

    def metrics(self, ranks: Ranks) -> Metrics:
        (kl,) = self._kl.take(ranks)
        return {"loss/kl_reference": kl}


class ValueHead(nn.Module):
    """A linear layer in float32 from hidden states (N, D) to the expected return (N,). Its weights start at zero.

    The hidden state that predicts a token depends only on earlier tokens, so the value does not depend on the sampled
    token.
    """

    def __init__(self, hidden_size: int, device: torch.device) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden_size, 1, device=device)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, hidden_ND: Tensor) -> Tensor:
        value_N: Tensor = self.linear(hidden_ND.float())[:, 0]
        return value_N


@torch.no_grad()
def gae(
    reward_N: Tensor, value_N: Tensor, sequence_N: Tensor, gamma: float, gae_lambda: float
) -> tuple[Tensor, Tensor]:
    """Return the GAE advantages and returns (N,) of the sampled tokens, computed within each sequence (1506.02438):

    delta_t = r_t + gamma V_{t+1} - V_t;  A_t = delta_t + gamma lambda A_{t+1};  return_t = A_t + V_t, with V = A = 0
    after the last token. t counts only sampled tokens; the environment's tokens between two turns are skipped.
    """
    # A_t depends on A_{t+1}, so this is a loop, over Python floats.
    rewards, values, sequences = reward_N.tolist(), value_N.tolist(), sequence_N.tolist()
    advantages = [0.0] * len(rewards)
    later_value = later_advantage = 0.0
    for n in reversed(range(len(rewards))):
        if n + 1 == len(rewards) or sequences[n + 1] != sequences[n]:
            later_value = later_advantage = 0.0
        delta = rewards[n] + gamma * later_value - values[n]
        later_advantage = delta + gamma * gae_lambda * later_advantage
        later_value = values[n]
        advantages[n] = later_advantage
    advantage_N = to_device(advantages, value_N.dtype, value_N.device)
    return advantage_N, advantage_N + value_N


def value_loss(value_N: Tensor, return_N: Tensor) -> Tensor:
    """Return (V - return)^2 / 2. PPO clips this loss by V's change since the batch was collected. Here each batch is
    used for only one update, so no clip is needed."""
    return 0.5 * (value_N - return_N).square()


class Critic:
    """The auxiliary loss of a value head. It also replaces the tokens' advantages with GAE advantages (1506.02438),
    which are computed from the tokens' rewards and the head's values."""

    def __init__(self, head: ValueHead, loss: ResolvedLoss) -> None:
        self.head, self._loss = head, loss
        self.heads: Mapping[str, Head] = {"value_head": Head(head, loss.value_lr)}
        self._means = _Means()

    def __call__(
        self, tokens: TokenBatch, _pack: Pack, hidden_ND: Tensor, reward_N: Tensor, _temperature: float
    ) -> tuple[TokenBatch, Tensor]:
        # The hidden states carry a gradient, so the value loss trains the model, not only the head.
        value_N = self.head(hidden_ND)
        gamma, gae_lambda = self._loss.gamma, self._loss.gae_lambda
        advantage_N, return_N = gae(reward_N, value_N, tokens.sequence_N, gamma, gae_lambda)
        loss_N = value_loss(value_N, return_N)
        # Collect means of values and squares, because they can be averaged over micro-batches and processes; variances
        # cannot.
        self._means.add(loss_N, value_N, return_N, return_N.square())
        return replace(tokens, advantage_N=advantage_N), self._loss.value_coef * loss_N

    def metrics(self, ranks: Ranks) -> Metrics:
        error, value, returned, square = self._means.take(ranks)
        # The share of the returns' variance that the values explain. The factor 2 cancels the 1/2 in `value_loss`.
        variance = square - returned**2
        explained = 1 - 2 * error / variance if variance > 1e-12 else 0.0
        return {"loss/value": error, "loss/value_mean": value, "loss/value_explained": explained}


def build_aux_losses(
    loss: ResolvedLoss, module: nn.Module, load_reference: Callable[[], nn.Module]
) -> tuple[AuxLoss, ...]:
    """Build the auxiliary losses that `loss` enables. `load_reference` is called only if a reference is needed."""
    aux_losses: list[AuxLoss] = []
    if loss.kl_beta:
        aux_losses.append(ReferenceKL(load_reference(), loss.kl_beta))
    if loss.has_critic:
        config: Any = module.config
        aux_losses.append(Critic(ValueHead(config.hidden_size, next(module.parameters()).device), loss))
    return tuple(aux_losses)
