"""Computes the log-probabilities of the trained tokens. The logits of all tokens, a (T, V) tensor, are never in memory.

After one forward of the packed row, the LM head runs only on the trained positions, one chunk after the other. The
backward pass computes the logits of a chunk again, so only one number per token is stored. Within a chunk, the softmax
is computed a few rows at a time, so its float32 numbers stay in the processor's cache.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from slimrl.models.forward.module import call_as_forward, head_logits
from slimrl.models.forward.training import training_hidden
from slimrl.models.native import ops
from slimrl.trainer.attention import PackedPlan
from slimrl.trainer.packing import Pack

CHUNK = 512
# The number of float32 values in one block of rows, 4 MiB: larger blocks exceed the cache, smaller blocks need more
# calls.
BLOCK = 1 << 20


def target_logprobs(
    module: nn.Module, pack: Pack, temperature: float, recompute: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the log-probabilities (N,) of the pack's targets, the entropies (N,), and the hidden states (N, D) that
    predict the targets. The distribution is softmax(logits / temperature).

    Log-probabilities and entropies are in nats and float32, hidden states in the module's dtype. The entropies carry no
    gradient. With `recompute`, the backward pass computes the layers' inner activations again instead of storing them.
    """
    results: tuple[Tensor, Tensor, Tensor] = call_as_forward(module, _target_logprobs, pack, temperature, recompute)
    return results


def _target_logprobs(
    module: nn.Module, pack: Pack, temperature: float, recompute: bool
) -> tuple[Tensor, Tensor, Tensor]:
    hidden_TD = training_hidden(module, pack.token_ids_T, pack.positions_T, PackedPlan(pack), recompute)
    hidden_ND = hidden_TD.index_select(0, pack.source_N)
    chunks = zip(hidden_ND.split(CHUNK), pack.target_N.split(CHUNK), strict=True)
    results = [_ChunkLogprobs.apply(hidden, target, module, temperature) for hidden, target in chunks]
    logprobs, entropies = zip(*results, strict=True)
    return torch.cat(logprobs), torch.cat(entropies), hidden_ND


class _ChunkLogprobs(torch.autograd.Function):
    """The LM head and the log-softmax of a chunk. d logprob / d logits = (onehot - softmax) / temperature."""

    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, target_N: Tensor, module: nn.Module, temperature: float
    ) -> tuple[Tensor, Tensor]:
        logits_NV = head_logits(module, hidden_ND)
        statistics = ops.logprobs if ops.available(logits_NV) else _logprobs
        logsumexp_N, logprob_N, entropy_N = statistics(logits_NV, target_N, temperature)
        ctx.save_for_backward(hidden_ND, target_N, logsumexp_N)
        ctx.module, ctx.temperature = module, temperature
        ctx.mark_non_differentiable(entropy_N)
        return logprob_N, entropy_N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_N: Tensor, _grad_entropy_N: Tensor) -> tuple[Tensor | None, None, None, None]:
        hidden_ND, target_N, logsumexp_N = ctx.saved_tensors
        # Autograd is off in a backward pass. Enable it for the head only, starting at a fresh leaf.
        with torch.enable_grad():
            hidden_ND = hidden_ND.detach().requires_grad_()
            logits_NV = head_logits(ctx.module, hidden_ND)
        # The gradient overwrites the logits, because a second (N, V) tensor would double the peak memory. Nothing reads
        # the logits afterwards. Detaching hides the overwriting from autograd.
        gradient_NV = logits_NV.detach()
        differentiate = ops.logprobs_backward if ops.available(gradient_NV) else _logprobs_backward
        differentiate(gradient_NV, target_N, grad_N / ctx.temperature, ctx.temperature, logsumexp_N)
        # This call also accumulates the gradients of the head's own parameters, as torch's checkpoint does.
        torch.autograd.backward(logits_NV, gradient_NV)
        return hidden_ND.grad, None, None, None


def _logprobs(logits_NV: Tensor, target_N: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the same result as `ops.logprobs`, on devices without this kernel."""
    logsumexp_N, logprob_N, entropy_N = (torch.empty(len(target_N), device=logits_NV.device) for _ in range(3))
    for rows in _blocks(logits_NV):
        scaled = _scale(logits_NV[rows], temperature)
        # Subtract the maximum, so that `exp` cannot overflow.
        top = scaled.amax(-1)
        scaled.sub_(top[:, None])
        weight = scaled.exp()
        total = weight.sum(-1)
        logprob_N[rows] = scaled.gather(-1, target_N[rows, None])[:, 0] - total.log()
        # A forbidden token has logit -inf and weight 0. The clamp makes their product 0; 0 * inf would be nan.
        entropy_N[rows] = total.log() - torch.linalg.vecdot(weight, scaled.clamp_min_(-1e30)) / total
        logsumexp_N[rows] = total.log() + top
    return logsumexp_N, logprob_N, entropy_N


def _logprobs_backward(
    logits_NV: Tensor, target_N: Tensor, weight_N: Tensor, temperature: float, logsumexp_N: Tensor
) -> None:
    """Overwrite the logits with their gradient, like `ops.logprobs_backward`, on devices without this kernel."""
    for rows in _blocks(logits_NV):
        weight_N1 = weight_N[rows, None]
        gradient = _scale(logits_NV[rows], temperature)
        # Compute weight * (onehot - softmax) in two steps: -weight * softmax, then + weight at the target.
        gradient = gradient.sub_(logsumexp_N[rows, None]).exp_().mul_(-weight_N1)
        logits_NV[rows] = gradient.scatter_add_(-1, target_N[rows, None], weight_N1)


def _scale(logits: Tensor, temperature: float) -> Tensor:
    """Return the logits divided by the temperature, as a float32 copy that the caller may overwrite."""
    exact = logits.to(torch.float32, copy=True)
    return exact if temperature == 1.0 else exact.div_(temperature)


def _blocks(logits_NV: Tensor) -> Iterator[slice]:
    """Return slices that cover all rows. On a CPU each slice has only a few rows, so that it fits into the cache."""
    N, V = logits_NV.shape
    size = max(1, BLOCK // V) if logits_NV.device.type == "cpu" else N
    return (slice(start, start + size) for start in range(0, N, size))
