"""Log-probabilities of the trained tokens, without ever holding a (T, V) tensor of floats.

One forward of the packed row; then the LM head runs on trained positions only, a chunk at a time. A chunk keeps one
number a token for the backward pass and computes its logits again there.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from slimrl.models.forward import head_logits, hidden_states
from slimrl.trainer.packing import Pack, PackedPlan

CHUNK = 512


def target_logprobs(module: nn.Module, pack: Pack, temperature: float) -> tuple[Tensor, Tensor]:
    """(logprob_N, entropy_N) of the pack's targets under softmax(logits / temperature), float32.

    The entropy is that of the whole distribution, in nats, and carries no gradient.
    """
    hidden_TD = hidden_states(module, pack.token_ids_T, pack.positions_T, PackedPlan(pack))
    hidden_ND = hidden_TD.index_select(0, pack.source_N)
    chunks = zip(hidden_ND.split(CHUNK), pack.target_N.split(CHUNK), strict=True)
    results = [_ChunkLogprobs.apply(hidden, target, module, temperature) for hidden, target in chunks]
    logprobs, entropies = zip(*results, strict=True)
    return torch.cat(logprobs), torch.cat(entropies)


class _ChunkLogprobs(torch.autograd.Function):
    """The LM head and the log-softmax of a chunk. d logprob / d logits = (onehot - softmax) / temperature."""

    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, target_N: Tensor, module: nn.Module, temperature: float
    ) -> tuple[Tensor, Tensor]:
        logits_NV = head_logits(module, hidden_ND).float() / temperature
        logsumexp_N = logits_NV.logsumexp(-1)
        logprob_N = logits_NV.gather(-1, target_N[:, None])[:, 0] - logsumexp_N
        probability_NV = (logits_NV - logsumexp_N[:, None]).exp_()
        # A forbidden token's logit is -inf; 0 times that must be 0.
        entropy_N = logsumexp_N - torch.linalg.vecdot(probability_NV, logits_NV.clamp_min_(-1e30))
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
        weight_N1 = (grad_N / ctx.temperature)[:, None]
        gradient_NV = (logits_NV.detach().float() / ctx.temperature - logsumexp_N[:, None]).exp_().mul_(-weight_N1)
        gradient_NV.scatter_add_(-1, target_N[:, None], weight_N1)
        # The head's own parameters get their gradients here, as in a checkpoint.
        torch.autograd.backward(logits_NV, gradient_NV.to(logits_NV.dtype))
        return hidden_ND.grad, None, None, None
