"""Policy losses, the other terms, and what divides their sum. Pure functions of tensors; no model, no device.

Notation, per trained token: `new` = log-probability under the weights being trained, `old` = under the sampler when the
token was drawn, rho = exp(new - old), A = advantage (no gradient), sg = stop gradient. Index suffix _N: the trained
tokens of a micro-batch, laid end to end; `sequence_N` says which rollout each belongs to. Every loss returns (L_N,
capped_N): the loss of each token, to be multiplied by its weight from `token_weights` and summed, and whether a cap or
clip decided it.

Differences of log-probabilities are clamped before `exp`: e^20 is far beyond every cap, and no product overflows.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from slimrl.config.loss import Aggregation, ResolvedLoss

MAX_LOG_RATIO = 20.0
LOWEST_LOGPROB = -1e4  # of a reference that forbids a token


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """What a loss is a function of; all tensors (N,), `new_N` alone carries a gradient."""

    new_N: Tensor
    old_N: Tensor
    advantage_N: Tensor
    sequence_N: Tensor


PolicyLoss = Callable[[TokenBatch, ResolvedLoss], tuple[Tensor, Tensor]]

POLICY_LOSSES: dict[str, PolicyLoss] = {}


def policy_loss(function: PolicyLoss) -> PolicyLoss:
    """Make a policy loss known by its name, under which `config/loss.py` lists the numbers that it uses."""
    POLICY_LOSSES[function.__name__] = function
    return function


def log_ratio(new_N: Tensor, old_N: Tensor) -> Tensor:
    """log rho, clamped to +-20. A clamped token has no gradient: its ratio is beyond every cap, and where nothing caps
    it (`clip` with A < 0 and no `dual_clip`) e^20 would leave nothing of the other tokens."""
    return (new_N - old_N).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


@policy_loss
def aipo(tokens: TokenBatch, loss: ResolvedLoss) -> tuple[Tensor, Tensor]:
    """L = -sg(min(rho, delta)) A new. One-sided cap on the importance weight (LlamaRL, 2505.24034)."""
    rho_N = log_ratio(tokens.new_N, tokens.old_N).detach().exp()
    loss_N = -rho_N.clamp_max(loss.delta) * tokens.advantage_N * tokens.new_N
    return loss_N, rho_N > loss.delta


@policy_loss
def clip(tokens: TokenBatch, loss: ResolvedLoss) -> tuple[Tensor, Tensor]:
    """L = -min(rho A, clip(rho, 1 - eps_low, 1 + eps_high) A) (PPO, 1707.06347; GRPO, 2402.03300)."""
    return _clipped(log_ratio(tokens.new_N, tokens.old_N).exp(), tokens.advantage_N, loss)


@policy_loss
def gspo(tokens: TokenBatch, loss: ResolvedLoss) -> tuple[Tensor, Tensor]:
    """As `clip`, with the ratio of the whole sequence, s = exp(mean(new - old)): each token's ratio is
    sg(s) exp(new - sg(new)), so that all tokens of a rollout are clipped together (GSPO, 2507.18071)."""
    num_sequences = int(tokens.sequence_N.max()) + 1 if tokens.sequence_N.numel() else 0
    difference_N = (tokens.new_N - tokens.old_N).detach().double()  # tens of thousands are added one after the other
    sums = difference_N.new_zeros(num_sequences).index_add(0, tokens.sequence_N, difference_N)
    counts = tokens.sequence_N.bincount(minlength=num_sequences).clamp_min(1)
    mean_N = (sums / counts).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).to(tokens.new_N.dtype)[tokens.sequence_N]
    rho_N = mean_N.exp() * (tokens.new_N - tokens.new_N.detach()).exp()
    return _clipped(rho_N, tokens.advantage_N, loss)


@policy_loss
def cispo(tokens: TokenBatch, loss: ResolvedLoss) -> tuple[Tensor, Tensor]:
    """L = -sg(clip(rho, 1 - eps_low, 1 + eps_high)) A new: clipped tokens keep their gradient (MiniMax-M1,
    2506.13585)."""
    rho_N = log_ratio(tokens.new_N, tokens.old_N).detach().exp()
    weight_N = rho_N.clamp(1 - loss.eps_low, 1 + loss.eps_high)
    return -weight_N * tokens.advantage_N * tokens.new_N, weight_N != rho_N


@policy_loss
def reinforce(tokens: TokenBatch, loss: ResolvedLoss) -> tuple[Tensor, Tensor]:
    """L = -A new (Williams 1992). It knows nothing of stale data, unless `max_weight` = c gives it the truncated
    importance weight sg(min(rho, c)) (Ionides 2008)."""
    if not loss.max_weight:
        return -tokens.advantage_N * tokens.new_N, torch.zeros_like(tokens.new_N, dtype=torch.bool)
    rho_N = log_ratio(tokens.new_N, tokens.old_N).detach().exp()
    return -rho_N.clamp_max(loss.max_weight) * tokens.advantage_N * tokens.new_N, rho_N > loss.max_weight


def _clipped(rho_N: Tensor, advantage_N: Tensor, loss: ResolvedLoss) -> tuple[Tensor, Tensor]:
    plain_N = rho_N * advantage_N
    clipped_N = rho_N.clamp(1 - loss.eps_low, 1 + loss.eps_high) * advantage_N
    objective_N = torch.minimum(plain_N, clipped_N)
    if loss.dual_clip:  # max(objective, c A) where A < 0 (1912.09729): the loss of a bad token is bounded too
        bounded_N = torch.maximum(objective_N, loss.dual_clip * advantage_N)
        objective_N = torch.where(advantage_N < 0, bounded_N, objective_N)
    return -objective_N, objective_N != plain_N


def kl_to_reference(new_N: Tensor, reference_N: Tensor) -> Tensor:
    """exp(ref - new) - (ref - new) - 1, the k3 estimate of KL(new || ref) at tokens drawn from `new` (2402.03300;
    Schulman, "Approximating KL Divergence", 2020). Never negative. A token that the reference thinks e^20 times more
    probable has no gradient; one that it forbids has that of any that it finds improbable, 1."""
    difference_N = (reference_N.clamp_min(LOWEST_LOGPROB) - new_N).clamp_max(MAX_LOG_RATIO)
    return difference_N.expm1() - difference_N


def token_weights(lengths_B: list[int], aggregation: Aggregation, max_tokens: int) -> list[float]:
    """The weight of each token of rollout b, from the trained lengths of the whole batch.

    The whole batch: all ranks, all micro-batches. So splitting a batch never changes its gradient.

    token: 1 / all trained tokens (DAPO, 2503.14476); sequence: 1 / (own length x rollouts) (GRPO, 2402.03300);
    constant: 1 / (rollouts x max_tokens) (Dr. GRPO, 2503.20783).
    """
    num_tokens, num_rollouts = sum(lengths_B), len(lengths_B)
    if aggregation == "token":
        return [1 / num_tokens] * num_rollouts
    if aggregation == "sequence":
        return [1 / (length * num_rollouts) for length in lengths_B]
    return [1 / (num_rollouts * max_tokens)] * num_rollouts
