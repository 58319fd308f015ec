"""Attention within a packed row on a CPU: each query meets each key that it sees once, and nothing is padded or copied.

A stretch attends causally to itself, and all that continue it, which lie behind it in one piece, attend to all of it.
So what many samples begin with is one large product for all of them. The parts of a query's attention are joined by
their log-sum-exp, as in Hydragen (2402.05099); the gradient of a part needs only the joint output and log-sum-exp
(FlashAttention, 2205.14135), so the backward pass computes no part anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from slimrl.trainer.packing import Segment

# What `scaled_dot_product_attention` calls on a CPU: these also return the log-sum-exp of the scores, which it drops.
_attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_attend_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


@dataclass(frozen=True, slots=True)
class Part:
    """Queries and keys, by their places in the row: a stretch with itself, or what continues it with all of it."""

    queries: slice
    keys: slice

    @property
    def is_own(self) -> bool:
        return self.queries == self.keys


def parts_of(stretches: Sequence[Segment]) -> list[Part]:
    """First every stretch with itself, then those that are continued with what continues them."""
    ends = [stretch.end for stretch in stretches]
    for number in sorted(range(len(stretches)), key=lambda n: -stretches[n].start):
        if (parent := stretches[number].parent) >= 0:
            ends[parent] = max(ends[parent], ends[number])
    own = [Part(slice(s.start, s.end), slice(s.start, s.end)) for s in stretches]
    continued = [(s, end) for s, end in zip(stretches, ends, strict=True) if end > s.end]
    return own + [Part(slice(s.end, end), slice(s.start, s.end)) for s, end in continued]


def attend_by_parts(query: Tensor, key: Tensor, value: Tensor, parts: Sequence[Part], scale: float) -> Tensor:
    """The attention output (T, H, D) of `query` (H, T, D) with `key` and `value` (K, T, D), K groups of query heads.

    Worked out in float32 at least: PyTorch's bfloat16 kernel spends most of the backward pass on rearranging small
    blocks.
    """
    wide = torch.promote_types(query.dtype, torch.float32)
    attended: Tensor = _ByParts.apply(query.to(wide), key.to(wide), value.to(wide), parts, scale)
    return attended.to(query.dtype)


class _ByParts(torch.autograd.Function):
    """T places of the row, K heads of keys, G query heads for each of them, D numbers a head."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, parts: Sequence[Part], scale: float) -> Tensor:
        query_KGTD, key_KGTD, value_KGTD = _grouped(query, key, value)
        K, G, T, D = query_KGTD.shape
        out_KGTD, lse_KGT = query.new_empty(K, G, T, D), query.new_empty(K, G, T)
        for part in parts:
            queries, keys = part.queries, part.keys
            inputs = query_KGTD[:, :, queries], key_KGTD[:, :, keys], value_KGTD[:, :, keys]
            out, lse = _attend(*inputs, 0.0, part.is_own, scale=scale)
            if part.is_own:
                out_KGTD[:, :, queries], lse_KGT[:, :, queries] = out, lse
            else:
                before = lse_KGT[:, :, queries]
                out_KGTD[:, :, queries].lerp_(out, torch.sigmoid(lse - before)[..., None])
                before.copy_(torch.logaddexp(before, lse))
        out_THD = out_KGTD.permute(2, 0, 1, 3).flatten(1, 2)
        ctx.save_for_backward(query, key, value, out_THD, lse_KGT)
        ctx.parts, ctx.scale = parts, scale
        return out_THD

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, out_THD, lse_KGT = ctx.saved_tensors
        query_KGTD, key_KGTD, value_KGTD = _grouped(query, key, value)
        out_KGTD, grad_KGTD = (x.transpose(0, 1).view_as(query_KGTD) for x in (out_THD, grad))
        query_grad, key_grad, value_grad = map(torch.zeros_like, (query, key, value))
        query_grad_KGTD = query_grad.view(query_KGTD.shape)
        for part in ctx.parts:
            queries, keys = part.queries, part.keys
            inputs = query_KGTD[:, :, queries], key_KGTD[:, :, keys], value_KGTD[:, :, keys]
            came_to = out_KGTD[:, :, queries], lse_KGT[:, :, queries]
            grads = _attend_backward(grad_KGTD[:, :, queries], *inputs, *came_to, 0.0, part.is_own, scale=ctx.scale)
            query_grad_KGTD[:, :, queries] += grads[0]
            key_grad[:, keys] += grads[1].sum(1)
            value_grad[:, keys] += grads[2].sum(1)
        return query_grad, key_grad, value_grad, None, None


def _grouped(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(K, G, T, D) each, without a copy."""
    query_KGTD = query.unflatten(0, (len(key), -1))
    return query_KGTD, key[:, None].expand_as(query_KGTD), value[:, None].expand_as(query_KGTD)
