"""The KV cache: a fixed number of slots, each with the keys and values of one sequence. Knows nothing about scheduling.

A slot remembers which token ids its keys and values belong to, so that a later request that begins with the same
tokens (the group's prompt, the conversation so far) starts from them. `CachePlan` is the attention plan that fills and
reads the slots during one forward (see `models/forward/attention.py`).
"""

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from slimrl.models.forward.attention import (
    AttentionPlan,
    LayerInputs,
    attention_after_prefix,
    gqa_attention,
    visible,
)
from slimrl.models.native import ops

MIN_SHARING, MIN_SHARED = 4, 64  # sequences, and tokens that all of them begin with: below that it gains nothing


class SlotCache:
    """Keys and values per layer, each (slots + 1, capacity, H_kv * D), allocated when the layer is first seen. The last
    slot is nobody's: rows that are computed for nothing write there (`inference/graphs.py`). The capacity is rounded up
    to whole blocks of positions; what lies where in a block is the plans' business."""

    def __init__(self, num_slots: int, capacity: int) -> None:
        self.num_slots = num_slots
        self.capacity = _blocks(capacity)
        self.tokens: list[list[int]] = [[] for _ in range(num_slots)]
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}

    def layer(self, layer: int, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """The (keys, values) of this layer, of the dtype and on the device of `like`; zeros where nothing was written,
        so that masked garbage stays finite."""
        if layer not in self._layers:
            shape = (self.num_slots + 1, self.capacity, width)
            self._layers[layer] = (like.new_zeros(shape), like.new_zeros(shape))
        return self._layers[layer]

    def copy_prefix(self, source: int, target: int, length: int) -> None:
        """Make the first `length` tokens of `target` those of `source`."""
        if source != target:
            end = _blocks(length)
            for keys, values in self._layers.values():
                keys[target, :end] = keys[source, :end]
                values[target, :end] = values[source, :end]
        self.tokens[target] = self.tokens[source][:length]

    def offload(self) -> None:
        """Let go of the memory, and so of every slot's content, until a layer is seen again."""
        self.clear()
        self._layers.clear()

    def clear(self) -> None:
        """Drop every slot's content: the weights it was computed from are gone."""
        self.tokens = [[] for _ in range(self.num_slots)]


def common_prefix_length(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading token ids two sequences have in common."""
    limit = min(len(a), len(b))
    low, high = 0, limit
    while low < high:  # compare slices (at C speed) on ever smaller ranges
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens `start..end` of the sequence in `slot`, whose keys and values a prefill computes."""

    slot: int
    start: int
    end: int


class CachePlan:
    """Several sequences' new tokens laid end to end in one row; each sees its own slot's earlier ones and itself."""

    def __init__(self, cache: SlotCache, spans: Sequence[Span], device: torch.device) -> None:
        self._cache = cache
        self._sequences = spans
        self._device = device
        lengths = [span.end - span.start for span in spans]
        firsts = itertools.accumulate(lengths, initial=0)
        rows = [(s.slot, first, length, s.start) for s, first, length in zip(spans, firsts, lengths, strict=False)]
        self.spans = torch.tensor(rows, dtype=torch.int32)

    def blocks(self, layer: int, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
        return self._cache.layer(layer, width, like)

    def attend(self, inputs: LayerInputs) -> Tensor:
        if not ops.blocks_fit(inputs.query):
            return self._without_blocks.attend(inputs)
        keys, values = _layer(self._cache, inputs)
        query, key, value = (_tokens(x) for x in (inputs.query, inputs.key, inputs.value))
        if len(key) > 1 and key.stride(0) != value.stride(0):
            key, value = key.contiguous(), value.contiguous()
        ops.store(key, value, keys, values, self.spans)
        return ops.attend(query, keys, values, self.spans, inputs.scale, inputs.window)[None]

    @functools.cached_property
    def _without_blocks(self) -> AttentionPlan:
        """For head sizes, dtypes and devices that have no kernel."""
        if all(span.end - span.start == 1 for span in self._sequences):
            return _DecodePlan(self._cache, self._sequences, self._device)
        return _PrefillPlan(self._cache, self._sequences)


class _PrefillPlan:
    """`CachePlan` span by span."""

    def __init__(self, cache: SlotCache, spans: Sequence[Span]) -> None:
        self._cache = cache
        self._spans = spans
        self._masks: dict[tuple[int, int, int], Tensor] = {}

    def attend(self, inputs: LayerInputs) -> Tensor:
        keys, values = _layer(self._cache, inputs)
        new_keys, new_values = (_flat(x) for x in (inputs.key, inputs.value))
        outputs, offset = [], 0
        for span in self._spans:
            rows = slice(offset, offset + span.end - span.start)
            keys[span.slot, span.start : span.end] = new_keys[rows]
            values[span.slot, span.start : span.end] = new_values[rows]
            slot, H_kv = slice(span.slot, span.slot + 1), inputs.key.shape[1]
            key, value = _heads(keys[slot, : span.end], H_kv), _heads(values[slot, : span.end], H_kv)
            mask = self._mask(span, inputs.window, keys.device)
            outputs.append(gqa_attention(inputs.query[:, :, rows], key, value, mask, inputs.scale))
            offset = rows.stop
        return torch.cat(outputs, dim=2).transpose(1, 2)

    def _mask(self, span: Span, window: int, device: torch.device) -> Tensor:
        key = (span.start, span.end, window)
        if key not in self._masks:
            positions = torch.arange(span.end, device=device)
            self._masks[key] = visible(positions[span.start :, None], positions[None], window)[None, None]
        return self._masks[key]


class _DecodePlan:
    """`CachePlan` for one new token a slot. Reads the cache in place unless few of its slots are in use. What all
    of the sequences begin with, instructions and examples, is read from one of the slots for all of them."""

    def __init__(self, cache: SlotCache, spans: Sequence[Span], device: torch.device) -> None:
        slots, positions = [span.slot for span in spans], [span.start for span in spans]
        self._cache = cache
        self._slots_B = torch.tensor(slots, device=device)
        positions_B = torch.tensor(positions, device=device)
        self._places_B = self._slots_B * cache.capacity + positions_B
        self._num_keys = max(positions) + 1
        self._num_shared = _num_shared([cache.tokens[slot] for slot in slots]) if device.type == "cpu" else 0
        self._sharer = slice(slots[0], slots[0] + 1)
        num_rows = max(slots) + 1
        self._dense = list(slots) == list(range(num_rows))
        self._in_place = 4 * len(slots) >= num_rows
        if self._in_place:
            # Idle slots in between are computed along and thrown away; one position keeps their softmax finite.
            self._row_positions = torch.full((num_rows,), self._num_shared, device=device)
            self._row_positions[self._slots_B] = positions_B
        else:
            self._row_positions = positions_B
        self._masks: dict[int, Tensor] = {}

    def attend(self, inputs: LayerInputs) -> Tensor:
        keys, values = _layer(self._cache, inputs)
        keys.flatten(0, 1).index_copy_(0, self._places_B, _flat(inputs.key))
        values.flatten(0, 1).index_copy_(0, self._places_B, _flat(inputs.value))
        query = inputs.query[0].transpose(0, 1)[:, :, None]
        num_rows, H_kv = len(self._row_positions), inputs.key.shape[1]
        begin = 0 if inputs.window else self._num_shared
        if self._in_place:
            own = [_heads(kv[:num_rows, begin : self._num_keys], H_kv) for kv in (keys, values)]
        else:
            behind = (kv[:, begin : self._num_keys] for kv in (keys, values))
            own = [_heads(kv.index_select(0, self._slots_B), H_kv) for kv in behind]
        if self._in_place and not self._dense:
            query = query.new_zeros(num_rows, *query.shape[1:]).index_copy_(0, self._slots_B, query)
        mask = self._mask(inputs.window, query.dtype)[..., begin:]
        if begin:
            prefix = [_heads(kv[self._sharer, :begin], H_kv) for kv in (keys, values)]
            out = attention_after_prefix(query, prefix, own, mask, inputs.scale)
        else:
            out = gqa_attention(query, own[0], own[1], mask, inputs.scale)
        if self._in_place and not self._dense:
            out = out.index_select(0, self._slots_B)
        return out[:, :, 0][None]

    def _mask(self, window: int, dtype: torch.dtype) -> Tensor:
        if window not in self._masks:
            self._masks[window] = _scores_mask(self._row_positions, self._num_keys, window, dtype)
        return self._masks[window]


class RowsPlan:
    """One new token for each of the first slots, row r in slot r, whatever that slot holds. Every number that may
    differ from step to step is in a tensor: `positions_S`, and `places_S`, where its keys and values go, as rows of the
    cache. So a step can be recorded and repeated. Rows attend to at most `num_keys` positions."""

    def __init__(self, cache: SlotCache, positions_S: Tensor, places_S: Tensor, num_keys: int) -> None:
        self._cache = cache
        self._positions_S = positions_S
        self._places_S = places_S
        self._num_keys = num_keys
        self._masks: dict[int, Tensor] = {}

    def attend(self, inputs: LayerInputs) -> Tensor:
        keys, values = _layer(self._cache, inputs)
        keys.flatten(0, 1).index_copy_(0, self._places_S, _flat(inputs.key))
        values.flatten(0, 1).index_copy_(0, self._places_S, _flat(inputs.value))
        num_rows, H_kv = len(self._positions_S), inputs.key.shape[1]
        key, value = (_heads(kv[:num_rows, : self._num_keys], H_kv) for kv in (keys, values))
        query = inputs.query[0].transpose(0, 1)[:, :, None]
        if inputs.window not in self._masks:
            mask = _scores_mask(self._positions_S, self._num_keys, inputs.window, query.dtype)
            self._masks[inputs.window] = mask
        out = gqa_attention(query, key, value, self._masks[inputs.window], inputs.scale)
        return out[:, :, 0][None]


def _num_shared(sequences: Sequence[Sequence[int]]) -> int:
    """How many tokens all begin with; 0 where that is not worth two passes instead of one. Slots with the same tokens
    have the same keys and values: those of other weights are forgotten."""
    if len(sequences) < MIN_SHARING:
        return 0
    num = min(common_prefix_length(sequences[0], other) for other in sequences[1:])
    return num if num >= MIN_SHARED else 0


def _scores_mask(positions_S: Tensor, num_keys: int, window: int, dtype: torch.dtype) -> Tensor:
    """What is added to the scores (S, 1, 1, num_keys): 0 or -inf. From booleans every layer would make it anew."""
    keys = torch.arange(num_keys, device=positions_S.device)
    mask = visible(positions_S[:, None], keys[None], window)[:, None, None]
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, -torch.inf)


def _layer(cache: SlotCache, inputs: LayerInputs) -> tuple[Tensor, Tensor]:
    _, H_kv, _, D = inputs.key.shape
    return cache.layer(inputs.layer, H_kv * D, inputs.key)


def _blocks(length: int) -> int:
    """The length rounded up to whole blocks of positions."""
    return -(-length // ops.POSITIONS) * ops.POSITIONS


def _tokens(heads: Tensor) -> Tensor:
    """(1, H, T, D) as (T, H, D), every token's heads side by side."""
    tokens = heads[0].transpose(0, 1)
    return tokens if tokens[0].is_contiguous() else tokens.contiguous()


def _flat(heads: Tensor) -> Tensor:
    """(1, H_kv, T, D) as (T, H_kv * D)."""
    return heads[0].transpose(0, 1).flatten(1)


def _heads(rows: Tensor, num_heads: int) -> Tensor:
    """(S, L, H_kv * D) as (S, H_kv, L, D)."""
    S, L, width = rows.shape
    return rows.view(S, L, num_heads, width // num_heads).transpose(1, 2)
