"""Attention within a packed row. The plan lets each token attend only to its sequence (`models/forward/attention.py`).

There are four implementations. On a GPU, FlexAttention computes only the blocks of the row in which a query sees a key
(`trainer/attention_blocks.py`). On a CPU with AMX or AVX512-BF16, slimrl's kernel reads the packed row directly. On
other CPUs, PyTorch's kernel computes long sequences part by part (`trainer/attention_parts.py`). There, short segments
of similar size form padded batches. These need much memory, so the backward pass builds them again.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint

from slimrl.models.forward.attention import LayerInputs, gqa_attention, visible
from slimrl.models.native import ops
from slimrl.trainer.attention_blocks import BlockAttention
from slimrl.trainer.attention_parts import Part, attend_by_parts, parts_of
from slimrl.trainer.packing import Pack, Segment

# Segments of similar size form a bucket, padded to the longest segment. A bucket gets no more segments if its padded
# area would exceed this multiple of its unpadded area.
MAX_PADDING = 1.5
# Below this mean number of keys per query, padded batches are faster on a CPU than one call per part: with 53 keys they
# take 0.8 of the time, with 459 keys 1.3 times and with 954 keys 1.7 times as long (one core, AVX2).
MANY_KEYS = 128
# Up to this many queries per sequence, a CPU computes attention and its gradient faster in float32: PyTorch's bfloat16
# kernel spends most of the backward pass on rearranging small blocks (29 sequences of 63: 36 against 17 ms).
SHORT = 256


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Segments of similar size as a padded batch of S sequences.

    `query_index` (S, Lq) and `key_index` (S, Lk) are positions in the row. `query_order` (S, Lq) are the queries'
    positions in their sequence. The index of a key along Lk is also its position in its sequence; only the first
    `num_keys` (S,) keys are real. Padding has index 0 and order 0. Entry `gather[i]` of the flat padded output belongs
    to token `scatter[i]` of the row.
    """

    query_index: Tensor
    key_index: Tensor
    query_order: Tensor
    num_keys: Tensor
    scatter: Tensor
    gather: Tensor


class PackedPlan:
    """The attention plan of a pack."""

    def __init__(self, pack: Pack) -> None:
        self._pack = pack
        self._longest, self._sees_many = pack.longest, pack.mean_keys >= MANY_KEYS

    def attend(self, inputs: LayerInputs) -> Tensor:
        if inputs.query.device.type == "cuda":
            return self._blocks.attend(inputs)
        if ops.blocks_fit(inputs.query):
            return self._by_kernel(inputs)
        # A part cannot hide the keys outside a sliding window.
        sees_all = not inputs.window or inputs.window >= self._longest
        if sees_all and self._sees_many:
            heads = inputs.query[0], inputs.key[0], inputs.value[0]
            return attend_by_parts(*heads, self._parts, inputs.scale)[None]
        return self._buckets.attend(inputs)

    def _by_kernel(self, inputs: LayerInputs) -> Tensor:
        query, key, value = (x[0].transpose(0, 1).contiguous() for x in (inputs.query, inputs.key, inputs.value))
        segments = ops.Segments(self._rows, inputs.scale, inputs.window)
        attended: Tensor = _Attention.apply(query, key, value, segments)
        return attended[None]

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

    @functools.cached_property
    def _buckets(self) -> "_Buckets":
        return _Buckets(self._pack)


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


class _Buckets:
    """Attention in padded batches of segments."""

    def __init__(self, pack: Pack) -> None:
        device = pack.token_ids_T.device
        self._num_tokens = len(pack.token_ids_T)
        self._buckets = [_make_bucket(similar, pack.segments, device) for similar in _group_by_size(pack.segments)]
        # The outputs of all buckets, concatenated, are in this order of the row's tokens. The inverse permutation
        # restores the order of the row.
        order = torch.cat([bucket.scatter for bucket in self._buckets])
        self._restore_T = torch.empty_like(order)
        self._restore_T[order] = torch.arange(self._num_tokens, device=device)
        self._masks: dict[tuple[int, int], Tensor] = {}

    def attend(self, inputs: LayerInputs) -> Tensor:
        # The checkpoint stores query, key and value as they are in the row; the backward pass gathers them again.
        heads = inputs.query, inputs.key, inputs.value
        attended: Tensor = checkpoint(self._attend, inputs, *heads, use_reentrant=False, preserve_rng_state=False)
        return attended

    def _attend(self, inputs: LayerInputs, *heads: Tensor) -> Tensor:
        query, key, value = (x[0].transpose(0, 1) for x in heads)
        outputs = []
        for number, bucket in enumerate(self._buckets):
            q = _rows(query, bucket.query_index)
            k, v = _rows(key, bucket.key_index), _rows(value, bucket.key_index)
            if q.shape[2] <= SHORT:
                q, k, v = q.float(), k.float(), v.float()
            out = gqa_attention(q, k, v, self._mask(number, inputs.window), inputs.scale).to(query.dtype)
            outputs.append(out.transpose(1, 2).flatten(0, 1).index_select(0, bucket.gather))
        return torch.cat(outputs).index_select(0, self._restore_T)[None]

    def _mask(self, number: int, window: int) -> Tensor:
        if (number, window) not in self._masks:
            bucket = self._buckets[number]
            key_order = torch.arange(bucket.key_index.shape[1], device=bucket.key_index.device)
            # A padding query sees the first key. Without a key its softmax would be nan, and the backward pass would
            # spread the nan to other gradients, although the output of a padding query is unused.
            mask = visible(bucket.query_order[:, :, None], key_order, window)
            self._masks[number, window] = (mask & (key_order < bucket.num_keys[:, None, None]))[:, None]
        return self._masks[number, window]


def _rows(x_THD: Tensor, index: Tensor) -> Tensor:
    """Gather a padded batch (S, H, L, D) from the row (T, H, D)."""
    return x_THD.index_select(0, index.flatten()).view(*index.shape, *x_THD.shape[1:]).transpose(1, 2)


def _group_by_size(segments: Sequence[Segment]) -> list[list[Segment]]:
    """Group segments into buckets of similar size. The padded area of a bucket, queries times keys, is at most
    `MAX_PADDING` times its unpadded area."""
    # Neighbours in the order of size need the least padding. The newest segment has the most queries of its bucket, but
    # any segment of the bucket may have the most keys. `area` is the unpadded area of the newest bucket.
    buckets: list[list[Segment]] = []
    area = 0
    for segment in sorted(segments, key=lambda s: (s.num_queries, s.num_keys)):
        work = segment.num_queries * segment.num_keys
        bucket = buckets[-1] if buckets else []
        longest_key = max([segment.num_keys, *(s.num_keys for s in bucket)])
        if bucket and segment.num_queries * longest_key * (len(bucket) + 1) <= MAX_PADDING * (area + work):
            bucket.append(segment)
            area += work
        else:
            buckets.append([segment])
            area = work
    return buckets


def _make_bucket(segments: Sequence[Segment], row: Sequence[Segment], device: torch.device) -> _Bucket:
    numbers = [(s.start, s.position, s.num_queries, s.num_keys) for s in segments]
    start, position, num_queries, num_keys = torch.tensor(numbers, device=device)[..., None].unbind(1)
    place = torch.arange(int(num_queries.max()), device=device)
    real = place < num_queries
    keys = [torch.tensor(_keys(segment, row), device=device) for segment in segments]
    return _Bucket(
        query_index=torch.where(real, start + place, 0),
        key_index=pad_sequence(keys, batch_first=True),
        query_order=torch.where(real, position + place, 0),
        num_keys=num_keys[:, 0],
        scatter=(start + place)[real],
        gather=real.flatten().nonzero()[:, 0],
    )


def _keys(segment: Segment, row: Sequence[Segment]) -> list[int]:
    """Return the row positions of all tokens of the sequence up to the segment's end, which are the segment's keys."""
    # The keys of the parent are first, because the parent has the start of the sequence.
    own = list(range(segment.start, segment.end))
    return own if segment.parent < 0 else _keys(row[segment.parent], row) + own
