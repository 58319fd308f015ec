"""Log-probabilities of the trained tokens, without ever holding a (T, V) tensor of floats.

One forward of the packed row; then the LM head runs on trained positions only, a chunk at a time. A chunk keeps one
number a token for the backward pass and computes its logits again there. Within a chunk the softmax is worked out a few
rows at a time, so that its float32 numbers stay in the processor's cache.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from slimrl.models.forward.module import head_logits
from slimrl.models.forward.training import training_hidden
from slimrl.models.native import ops
from slimrl.trainer.attention import PackedPlan
from slimrl.trainer.packing import Pack

CHUNK = 512
# Float32 numbers of one block of rows, 4 MiB: larger blocks leave the cache, smaller ones cost more calls.
BLOCK = 1 << 20


def target_logprobs(module: nn.Module, pack: Pack, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """(logprob_N, entropy_N, hidden_ND) of the pack's targets under softmax(logits / temperature), float32; `hidden` is
    what they were predicted from, in the module's dtype.

    The entropy is that of the whole distribution, in nats, and carries no gradient.
    """
    hidden_TD = training_hidden(module, pack.token_ids_T, pack.positions_T, PackedPlan(pack))
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
        with torch.enable_grad():
            hidden_ND = hidden_ND.detach().requires_grad_()
            logits_NV = head_logits(ctx.module, hidden_ND)
        # The gradient takes the logits' place: nothing needs them any more.
        gradient_NV = logits_NV.detach()
        differentiate = ops.logprobs_backward if ops.available(gradient_NV) else _logprobs_backward
        differentiate(gradient_NV, target_N, grad_N / ctx.temperature, ctx.temperature, logsumexp_N)
        # The head's own parameters get their gradients here, as in a checkpoint.
        torch.autograd.backward(logits_NV, gradient_NV)
        return hidden_ND.grad, None, None, None


def _logprobs(logits_NV: Tensor, target_N: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """`ops.logprobs` for devices without kernels."""
    logsumexp_N, logprob_N, entropy_N = (torch.empty(len(target_N), device=logits_NV.device) for _ in range(3))
    for rows in _blocks(logits_NV):
        scaled = _scaled(logits_NV[rows], temperature)
        top = scaled.amax(-1)
        scaled.sub_(top[:, None])
        mass = scaled.exp()
        total = mass.sum(-1)
        logprob_N[rows] = scaled.gather(-1, target_N[rows, None])[:, 0] - total.log()
        # A forbidden token's logit is -inf; 0 times that must be 0.
        entropy_N[rows] = total.log() - torch.linalg.vecdot(mass, scaled.clamp_min_(-1e30)) / total
        logsumexp_N[rows] = total.log() + top
    return logsumexp_N, logprob_N, entropy_N


def _logprobs_backward(
    logits_NV: Tensor, target_N: Tensor, weight_N: Tensor, temperature: float, logsumexp_N: Tensor
) -> None:
    """`ops.logprobs_backward` for devices without kernels."""
    for rows in _blocks(logits_NV):
        weight_N1 = weight_N[rows, None]
        gradient = _scaled(logits_NV[rows], temperature)
        gradient = gradient.sub_(logsumexp_N[rows, None]).exp_().mul_(-weight_N1)
        logits_NV[rows] = gradient.scatter_add_(-1, target_N[rows, None], weight_N1)


def _scaled(logits: Tensor, temperature: float) -> Tensor:
    """The logits over the temperature: float32 numbers of their own, free to be overwritten."""
    exact = logits.to(torch.float32, copy=True)
    return exact if temperature == 1.0 else exact.div_(temperature)


def _blocks(logits_NV: Tensor) -> Iterator[slice]:
    """Slices of a few rows each."""
    N, V = logits_NV.shape
    size = max(1, BLOCK // V) if logits_NV.device.type == "cpu" else N
    return (slice(start, start + size) for start in range(0, N, size))
