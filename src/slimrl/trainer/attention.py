"""Attention within a packed row. The plan lets each token attend only to its sequence (`models/forward/attention.py`).

On a GPU, FlexAttention computes only the blocks of the row in which a query sees a key (`trainer/attention_blocks.py`).
On a CPU with AMX or AVX512-BF16, slimrl's kernel reads the packed row directly. On other CPUs, PyTorch's kernel
computes attention part by part (`trainer/attention_parts.py`), or, within a sliding window, segment by segment.
"""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from slimrl.models.forward.attention import LayerInputs, gqa_attention, visible
from slimrl.models.native import ops
from slimrl.trainer.attention_blocks import BlockAttention
from slimrl.trainer.attention_parts import Part, attend_by_parts, parts_of
from slimrl.trainer.packing import Pack, Segment


class PackedPlan:
    """The attention plan of a pack."""

    def __init__(self, pack: Pack) -> None:
        self._pack = pack

    def attend(self, inputs: LayerInputs) -> Tensor:
        if inputs.query.device.type == "cuda":
            return self._blocks.attend(inputs)
        if ops.blocks_fit(inputs.query):
            return self._by_kernel(inputs)
        heads = inputs.query[0], inputs.key[0], inputs.value[0]
        if not inputs.window or inputs.window >= self._pack.longest:
            return attend_by_parts(*heads, self._parts, inputs.scale)[None]
        # The checkpoint stores query, key and value as they are in the row; the backward pass gathers them again.
        attended: Tensor = checkpoint(
            self._in_window, *heads, inputs.scale, inputs.window, use_reentrant=False, preserve_rng_state=False
        )
        return attended

    def _by_kernel(self, inputs: LayerInputs) -> Tensor:
        query, key, value = (x[0].transpose(0, 1).contiguous() for x in (inputs.query, inputs.key, inputs.value))
        segments = ops.Segments(self._rows, inputs.scale, inputs.window)
        attended: Tensor = _Attention.apply(query, key, value, segments)
        return attended[None]

    def _in_window(self, query: Tensor, key: Tensor, value: Tensor, scale: float, window: int) -> Tensor:
        """Return the attention output (1, T, H, D). Each segment is one call with a mask, because a part of
        `attend_by_parts` cannot hide the keys outside the window."""
        positions_T = self._pack.positions_T
        order = sorted(self._pack.segments, key=lambda segment: segment.start)
        outputs = []
        for segment in order:
            queries = slice(segment.start, segment.end)
            keys = torch.tensor(_keys(segment, self._pack.segments), device=query.device)
            mask = visible(positions_T[queries, None], positions_T[keys], window)
            heads = query[:, queries], key[:, keys], value[:, keys]
            # In float32, because PyTorch's bfloat16 kernel is slow for short sequences.
            q, k, v = (x[None].to(torch.promote_types(x.dtype, torch.float32)) for x in heads)
            outputs.append(gqa_attention(q, k, v, mask, scale).to(query.dtype))
        return torch.cat(outputs, dim=2).transpose(1, 2)

    # The input of each implementation. All layers of the model use the same plan, so an input is built once, on first
    # use.

    @functools.cached_property
    def _rows(self) -> Tensor:
        """Return a tensor with a row (start, length, parent, position) per segment, which is the kernel's input."""
        rows = [(s.start, s.num_queries, s.parent, s.position) for s in self._pack.segments]
        return torch.tensor(rows, dtype=torch.int32)

    @functools.cached_property
    def _parts(self) -> list[Part]:
        return parts_of(self._pack.segments)

    @functools.cached_property
    def _blocks(self) -> BlockAttention:
        return BlockAttention(self._pack)


class _Attention(torch.autograd.Function):
    """The kernel `ops.attend_packed` as a differentiable function."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, segments: ops.Segments) -> Tensor:
        out, logsumexp = ops.attend_packed(query, key, value, segments)
        ctx.save_for_backward(query, key, value, out, logsumexp)
        ctx.segments = segments
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, out, logsumexp = ctx.saved_tensors
        return *ops.attend_packed_backward(inputs, out, logsumexp, grad.contiguous(), ctx.segments), None


def _keys(segment: Segment, row: Sequence[Segment]) -> list[int]:
    """Return the row positions of all tokens of the sequence up to the segment's end, which are the segment's keys."""
    # The keys of the parent are first, because the parent has the start of the sequence.
    own = list(range(segment.start, segment.end))
    return own if segment.parent < 0 else _keys(row[segment.parent], row) + own
