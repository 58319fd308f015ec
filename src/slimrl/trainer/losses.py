"""Policy losses, the KL divergence from a reference, and token weights, as pure functions of tensors on any device.

Notation, per trained token: `new` = log-probability under the weights being trained, `old` = log-probability under the
sampler when the token was sampled, rho = exp(new - old), A = advantage (without a gradient), sg = stop gradient.

Index suffix _N: the trained tokens of a micro-batch, concatenated; `sequence_N` is the index of each token's rollout.
A policy loss takes a `TokenBatch` and its hyperparameters as keyword arguments. It returns (L_N, clipped_N). L_N is the
loss of each token; the caller multiplies it by the weights from `token_weights` and sums. clipped_N is True where a
clip or cap determined L_N. A user-defined function has the same signature (`own_loss.py`).

Differences of log-probabilities are clamped to +-20 before `exp`, so no product overflows. e^20 is far above any cap.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from slimrl.config.loss import Aggregation

MAX_LOG_RATIO = 20.0
LOWEST_LOGPROB = -1e4  # replaces -inf, the log-probability of a token that a reference forbids


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """The arguments of a policy loss: tensors (N,). Only `new_N` has a gradient."""

    new_N: Tensor
    old_N: Tensor
    advantage_N: Tensor
    sequence_N: Tensor


def log_ratio(new_N: Tensor, old_N: Tensor) -> Tensor:
    """Return log rho (N,), clamped to +-20. A clamped token has no gradient. Its ratio is beyond every cap, so a loss
    with a cap ignores it, too. Without a cap (`clip` with A < 0 and without `dual_clip`), its gradient would be scaled
    by e^20 and dominate the batch."""
    return (new_N - old_N).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def aipo(tokens: TokenBatch, delta: float) -> tuple[Tensor, Tensor]:
    """L = -sg(min(rho, delta)) A new. One-sided cap on the importance weight (LlamaRL, 2505.24034)."""
    rho_N = log_ratio(tokens.new_N, tokens.old_N).detach().exp()
    loss_N = -rho_N.clamp_max(delta) * tokens.advantage_N * tokens.new_N
    return loss_N, rho_N > delta


def clip(tokens: TokenBatch, eps_low: float, eps_high: float, dual_clip: float) -> tuple[Tensor, Tensor]:
    """L = -min(rho A, clip(rho, 1 - eps_low, 1 + eps_high) A) (PPO, 1707.06347; GRPO, 2402.03300)."""
    return _clip_ratio(log_ratio(tokens.new_N, tokens.old_N).exp(), tokens.advantage_N, eps_low, eps_high, dual_clip)


def gspo(tokens: TokenBatch, eps_low: float, eps_high: float) -> tuple[Tensor, Tensor]:
    """The loss of `clip` with the ratio of the whole sequence, s = exp(mean(new - old)). Each token's ratio is sg(s)
    exp(new - sg(new)), so all tokens of a rollout are clipped together (GSPO, 2507.18071)."""
    # One entry per token: only the GPU knows the number of sequences, and reading it would wait for the GPU.
    places_N = torch.zeros_like(tokens.sequence_N, dtype=torch.float64)
    # Use float64, because index_add sums the tokens of a sequence one by one, and there may be tens of thousands.
    difference_N = (tokens.new_N - tokens.old_N).detach().double()
    sums = places_N.index_add(0, tokens.sequence_N, difference_N)
    counts = places_N.index_add(0, tokens.sequence_N, torch.ones_like(difference_N)).clamp_min(1)
    mean_N = (sums / counts).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).to(tokens.new_N.dtype)[tokens.sequence_N]
    # The second factor is exactly 1 and adds only its gradient.
    rho_N = mean_N.exp() * (tokens.new_N - tokens.new_N.detach()).exp()
    return _clip_ratio(rho_N, tokens.advantage_N, eps_low, eps_high)


def cispo(tokens: TokenBatch, eps_low: float, eps_high: float) -> tuple[Tensor, Tensor]:
    """L = -sg(clip(rho, 1 - eps_low, 1 + eps_high)) A new: clipped tokens keep their gradient (MiniMax-M1,
    2506.13585)."""
    rho_N = log_ratio(tokens.new_N, tokens.old_N).detach().exp()
    weight_N = rho_N.clamp(1 - eps_low, 1 + eps_high)
    return -weight_N * tokens.advantage_N * tokens.new_N, weight_N != rho_N


def reinforce(tokens: TokenBatch, max_weight: float) -> tuple[Tensor, Tensor]:
    """L = -A new (Williams 1992). With `max_weight` = c, L is multiplied by the truncated importance weight
    sg(min(rho, c)) (Ionides 2008). This corrects for stale data."""
    if not max_weight:
        return -tokens.advantage_N * tokens.new_N, torch.zeros_like(tokens.new_N, dtype=torch.bool)
    rho_N = log_ratio(tokens.new_N, tokens.old_N).detach().exp()
    return -rho_N.clamp_max(max_weight) * tokens.advantage_N * tokens.new_N, rho_N > max_weight


# The names of the losses in the settings. `config/loss.py` has their hyperparameters.
POLICY_LOSSES: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "aipo": aipo,
    "clip": clip,
    "gspo": gspo,
    "cispo": cispo,
    "reinforce": reinforce,
}


def _clip_ratio(
    rho_N: Tensor, advantage_N: Tensor, eps_low: float, eps_high: float, dual_clip: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return -min(rho A, clip(rho) A) (N,), and a mask (N,) that is True where clipping changed this value."""
    plain_N = rho_N * advantage_N
    clipped_N = rho_N.clamp(1 - eps_low, 1 + eps_high) * advantage_N
    objective_N = torch.minimum(plain_N, clipped_N)
    if dual_clip:  # max(objective, c A) for A < 0 (1912.09729) bounds these losses, too
        bounded_N = torch.maximum(objective_N, dual_clip * advantage_N)
        objective_N = torch.where(advantage_N < 0, bounded_N, objective_N)
    return -objective_N, objective_N != plain_N


def kl_to_reference(new_N: Tensor, reference_N: Tensor) -> Tensor:
    """Return exp(ref - new) - (ref - new) - 1, the k3 estimate of KL(new || ref) at tokens drawn from `new`
    (2402.03300; Schulman, "Approximating KL Divergence", 2020). It is never negative.

    A token has no gradient if its probability under the reference is more than e^20 times its probability under the
    policy. It has gradient 1 if its probability under the reference is 0 or extremely low.
    """
    difference_N = (reference_N.clamp_min(LOWEST_LOGPROB) - new_N).clamp_max(MAX_LOG_RATIO)
    return difference_N.expm1() - difference_N  # expm1, because exp(x) - 1 loses all digits for small x


def token_weights(lengths_B: list[int], aggregation: Aggregation, seq_len: int) -> list[float]:
    """Return one weight for each rollout b. All tokens of the rollout have this weight.

    `lengths_B` are the numbers of trained tokens in the rollouts of the whole batch, over all ranks and micro-batches.
    So the division of a batch among them never changes its gradient.

    token: 1 / all trained tokens (DAPO, 2503.14476); sequence: 1 / (length_b x rollouts) (GRPO, 2402.03300);
    constant: 1 / (rollouts x seq_len) (Dr. GRPO, 2503.20783).
    """
    num_tokens, num_rollouts = sum(lengths_B), len(lengths_B)
    if aggregation == "token":
        return [1 / num_tokens] * num_rollouts
    if aggregation == "sequence":
        return [1 / (length * num_rollouts) for length in lengths_B]
    return [1 / (num_rollouts * seq_len)] * num_rollouts
