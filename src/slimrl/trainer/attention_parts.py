"""Attention within a packed row on a CPU, without padding and without copies.

A segment attends causally to itself. All segments that continue it attend to all of it, and lie directly behind it. So
a prefix that many samples share needs only one large matrix product. The attention of a query is computed in parts.
Each part has a softmax over the keys of one segment. The outputs of the parts are combined with the log-sum-exp (lse)
of each part, as in Hydragen (2402.05099). The gradient of a part needs only the combined output and lse
(FlashAttention, 2205.14135), so the backward pass does not compute the parts again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from slimrl.trainer.packing import Segment, ends_of_trees

# The CPU kernels behind `scaled_dot_product_attention`. Unlike that function, they return the lse.
_attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_attend_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


@dataclass(frozen=True, slots=True)
class Part:
    """Row positions of queries and of the keys that they attend to. The keys are one segment. The queries are the same
    segment, or all tokens that continue it."""

    queries: slice
    keys: slice

    @property
    def is_own(self) -> bool:
        """True if queries and keys are the same segment. Only such a part needs a causal mask."""
        return self.queries == self.keys


def parts_of(segments: Sequence[Segment]) -> list[Part]:
    """Return the parts of a row: first, for each segment, a part with the segment as queries and keys; then, for each
    segment that others continue, a part with the segment as keys and its continuations as queries."""
    own = [Part(slice(s.start, s.end), slice(s.start, s.end)) for s in segments]
    continued = [(s, end) for s, end in zip(segments, ends_of_trees(segments), strict=True) if end > s.end]
    return own + [Part(slice(s.end, end), slice(s.start, s.end)) for s, end in continued]


def attend_by_parts(query: Tensor, key: Tensor, value: Tensor, parts: Sequence[Part], scale: float) -> Tensor:
    """Return the attention output (T, H, D) of `query` (H, T, D) with `key` and `value` (K, T, D). H / K query heads
    share one of the K key heads.

    The computation uses float32 or wider, because PyTorch's bfloat16 kernel spends most of the backward pass on
    rearranging small blocks.
    """
    wide = torch.promote_types(query.dtype, torch.float32)
    attended: Tensor = _ByParts.apply(query.to(wide), key.to(wide), value.to(wide), parts, scale)
    return attended.to(query.dtype)


class _ByParts(torch.autograd.Function):
    """Attention in parts as a differentiable function. Suffixes: T row positions, K key heads, G query heads per key
    head, D dimensions per head."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, parts: Sequence[Part], scale: float) -> Tensor:
        query_KGTD, key_KGTD, value_KGTD = _by_key_head(query, key, value)
        K, G, T, D = query_KGTD.shape
        out_KGTD, lse_KGT = query.new_empty(K, G, T, D), query.new_empty(K, G, T)
        for part in parts:
            queries, keys = part.queries, part.keys
            inputs = query_KGTD[:, :, queries], key_KGTD[:, :, keys], value_KGTD[:, :, keys]
            out, lse = _attend(*inputs, 0.0, part.is_own, scale=scale)
            # The parts in which a segment attends to itself are first, so every query already has an output when
            # another part is added. The new part's share of the softmax is sigmoid(lse - before) = exp(lse) / (exp(lse)
            # + exp(before)).
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
        query_KGTD, key_KGTD, value_KGTD = _by_key_head(query, key, value)
        out_KGTD, grad_KGTD = (x.transpose(0, 1).view_as(query_KGTD) for x in (out_THD, grad))
        query_grad, key_grad, value_grad = map(torch.zeros_like, (query, key, value))
        query_grad_KGTD = query_grad.view(query_KGTD.shape)
        for part in ctx.parts:
            queries, keys = part.queries, part.keys
            inputs = query_KGTD[:, :, queries], key_KGTD[:, :, keys], value_KGTD[:, :, keys]
            # With the combined output and lse, the kernel computes the probabilities of the whole softmax for this
            # part's keys. So the gradients of the parts simply add up.
            whole = out_KGTD[:, :, queries], lse_KGT[:, :, queries]
            grads = _attend_backward(grad_KGTD[:, :, queries], *inputs, *whole, 0.0, part.is_own, scale=ctx.scale)
            query_grad_KGTD[:, :, queries] += grads[0]
            # The G query heads of a key head share its keys and values: sum their gradients.
            key_grad[:, keys] += grads[1].sum(1)
            value_grad[:, keys] += grads[2].sum(1)
        return query_grad, key_grad, value_grad, None, None


def _by_key_head(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return views of query, key and value, (K, G, T, D) each. `expand` repeats the keys without a copy."""
    query_KGTD = query.unflatten(0, (len(key), -1))
    return query_KGTD, key[:, None].expand_as(query_KGTD), value[:, None].expand_as(query_KGTD)
