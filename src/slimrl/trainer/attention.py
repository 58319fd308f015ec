"""Attention within a packed row: the plan that keeps its sequences apart (see `models/forward/attention.py`).

On a CPU with AMX or AVX512-BF16 a kernel goes through the row as it lies. Without them, PyTorch's does so part by part
where sequences are long (`trainer/attention_parts.py`). Elsewhere stretches of similar size are gathered into padded
batches; that is cheap to do again and large to keep, so the backward pass does it again.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from slimrl.models.forward.attention import LayerInputs, gqa_attention, visible
from slimrl.models.native import ops
from slimrl.trainer.attention_parts import Part, attend_by_parts, parts_of
from slimrl.trainer.packing import Pack, Segment

# A bucket of stretches is padded to its longest; a new bucket starts where padding would exceed this share of work.
MAX_PADDING = 1.5
# With fewer keys a query, padded batches are faster on a CPU than a call for each part: with 53 they take 0.8 of the
# time, with 459 1.3 times as long, with 954 1.7 times (one core, AVX2).
MANY_KEYS = 128
# Up to this many queries a sequence, a CPU computes attention and its gradient faster in float32: PyTorch's bfloat16
# kernel spends most of the backward pass on rearranging small blocks (29 sequences of 63: 36 against 17 ms).
SHORT = 256


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Stretches of similar size as a padded batch of S sequences.

    `query_index` (S, Lq) and `key_index` (S, Lk) are places in the row; `query_order` and `key_order` the same tokens'
    places in their own sequence; `real_key` marks keys that are not padding. The padded output's entries `gather`,
    flat, are those of the row's tokens `scatter`.
    """

    query_index: Tensor
    key_index: Tensor
    query_order: Tensor
    key_order: Tensor
    real_key: Tensor
    scatter: Tensor
    gather: Tensor


class PackedPlan:
    """The attention plan of a pack."""

    def __init__(self, pack: Pack) -> None:
        self._pack = pack
        self._longest, self._sees_many = pack.longest, pack.mean_keys >= MANY_KEYS

    def attend(self, inputs: LayerInputs) -> Tensor:
        if ops.blocks_fit(inputs.query):
            return self._by_kernel(inputs)
        sees_all = not inputs.window or inputs.window >= self._longest
        if inputs.query.device.type == "cpu" and sees_all and self._sees_many:
            heads = inputs.query[0], inputs.key[0], inputs.value[0]
            return attend_by_parts(*heads, self._parts, inputs.scale)[None]
        return self._buckets.attend(inputs)

    def _by_kernel(self, inputs: LayerInputs) -> Tensor:
        query, key, value = (x[0].transpose(0, 1).contiguous() for x in (inputs.query, inputs.key, inputs.value))
        stretches = ops.Segments(self._rows, inputs.scale, inputs.window)
        attended: Tensor = _Attention.apply(query, key, value, stretches)
        return attended[None]

    @functools.cached_property
    def _rows(self) -> Tensor:
        """The stretches as the kernel reads them."""
        rows = [(s.start, s.num_queries, s.parent, s.position) for s in self._pack.stretches]
        return torch.tensor(rows, dtype=torch.int32)

    @functools.cached_property
    def _parts(self) -> list[Part]:
        return parts_of(self._pack.stretches)

    @functools.cached_property
    def _buckets(self) -> "_Buckets":
        return _Buckets(self._pack)


class _Attention(torch.autograd.Function):
    """`ops.attend_packed` with its gradient."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, stretches: ops.Segments) -> Tensor:
        out, logsumexp = ops.attend_packed(query, key, value, stretches)
        ctx.save_for_backward(query, key, value, out, logsumexp)
        ctx.stretches = stretches
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, out, logsumexp = ctx.saved_tensors
        return *ops.attend_packed_backward(inputs, out, logsumexp, grad.contiguous(), ctx.stretches), None


class _Buckets:
    """The plan in padded batches."""

    def __init__(self, pack: Pack) -> None:
        device = pack.token_ids_T.device
        self._num_tokens = len(pack.token_ids_T)
        self._buckets = [_make_bucket(similar, pack.stretches, device) for similar in _similar(pack.stretches)]
        order = torch.cat([bucket.scatter for bucket in self._buckets])
        self._restore_T = torch.empty_like(order)
        self._restore_T[order] = torch.arange(self._num_tokens, device=device)
        self._masks: dict[tuple[int, int], Tensor] = {}

    def attend(self, inputs: LayerInputs) -> Tensor:
        heads = inputs.query, inputs.key, inputs.value
        attended: Tensor = checkpoint(self._attend, inputs, *heads, use_reentrant=False, preserve_rng_state=False)
        return attended

    def _attend(self, inputs: LayerInputs, *heads: Tensor) -> Tensor:
        query, key, value = (x[0].transpose(0, 1) for x in heads)
        outputs = []
        for number, bucket in enumerate(self._buckets):
            q = _rows(query, bucket.query_index)
            k, v = _rows(key, bucket.key_index), _rows(value, bucket.key_index)
            if q.device.type == "cpu" and q.shape[2] <= SHORT:
                q, k, v = q.float(), k.float(), v.float()
            out = gqa_attention(q, k, v, self._mask(number, inputs.window), inputs.scale).to(query.dtype)
            outputs.append(out.transpose(1, 2).flatten(0, 1).index_select(0, bucket.gather))
        return torch.cat(outputs).index_select(0, self._restore_T)[None]

    def _mask(self, number: int, window: int) -> Tensor:
        if (number, window) not in self._masks:
            bucket = self._buckets[number]
            mask = visible(bucket.query_order[:, :, None], bucket.key_order[:, None], window) & bucket.real_key[:, None]
            mask[:, :, 0] |= ~mask.any(-1)  # padding queries see something, so that their unused softmax is finite
            self._masks[number, window] = mask[:, None]
        return self._masks[number, window]


def _rows(x_THD: Tensor, index: Tensor) -> Tensor:
    """Gather (T, H, D) into a padded batch (S, H, L, D)."""
    return x_THD.index_select(0, index.flatten()).view(*index.shape, *x_THD.shape[1:]).transpose(1, 2)


def _similar(stretches: Sequence[Segment]) -> list[list[Segment]]:
    """Split into batches whose padded area is at most `MAX_PADDING` times the real one."""
    buckets: list[list[Segment]] = []
    area = 0
    for stretch in sorted(stretches, key=lambda s: (s.num_queries, s.num_keys)):
        work = stretch.num_queries * stretch.num_keys
        bucket = buckets[-1] if buckets else []
        longest_key = max([stretch.num_keys, *(s.num_keys for s in bucket)])
        if bucket and stretch.num_queries * longest_key * (len(bucket) + 1) <= MAX_PADDING * (area + work):
            bucket.append(stretch)
            area += work
        else:
            buckets.append([stretch])
            area = work
    return buckets


def _make_bucket(stretches: Sequence[Segment], row: Sequence[Segment], device: torch.device) -> _Bucket:
    Lq, Lk = max(s.num_queries for s in stretches), max(s.num_keys for s in stretches)

    def tensor(values: Sequence[object]) -> Tensor:
        return torch.tensor(values, device=device)

    return _Bucket(
        query_index=tensor([_padded(range(s.start, s.end), Lq) for s in stretches]),
        key_index=tensor([_padded(_keys(s, row), Lk) for s in stretches]),
        query_order=tensor([_padded(range(s.num_keys - s.num_queries, s.num_keys), Lq) for s in stretches]),
        key_order=tensor([_padded(range(s.num_keys), Lk) for s in stretches]),
        real_key=tensor([[k < s.num_keys for k in range(Lk)] for s in stretches]),
        scatter=tensor([t for s in stretches for t in range(s.start, s.end)]),
        gather=tensor([row * Lq + t for row, s in enumerate(stretches) for t in range(s.num_queries)]),
    )


def _keys(stretch: Segment, row: Sequence[Segment]) -> list[int]:
    """The places of all that the stretch sees, in order."""
    own = list(range(stretch.start, stretch.end))
    return own if stretch.parent < 0 else _keys(row[stretch.parent], row) + own


def _padded(values: Sequence[int], length: int) -> list[int]:
    return [*values, *[0] * (length - len(values))]
