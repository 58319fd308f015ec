"""A KV cache with a fixed number of slots, each for the keys and values of one sequence.

A slot's record (`SlotCache.tokens`) lists the token ids whose keys and values the slot holds. A later request with the
same beginning (the group's prompt, the conversation so far) reuses these keys and values. In the table, a group has two
samples of the prompt p q r, then the first sample has a second turn. <e> ends a turn, and u is the user's answer:

    request                        slot 0        slot 1
    p q r, the first sample        p q           -           prefill of all but the last token
    p q r, the second sample       p q           p q         copied from slot 0
    both decode: a <e> and b <e>   p q r a       p q r b     the last sampled token is never fed
    p q r a <e> u                  p q r a <e>   p q r b     continues in slot 0; only <e> is prefilled

`CachePlan` is the attention plan (`models/forward/attention.py`) that writes and reads the slots during one forward.
Knows nothing about scheduling.
"""

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right

from slimrl.models.device import to_device
from slimrl.models.forward.attention import (
    AttentionPlan,
    LayerInputs,
    attention_after_prefix,
    gqa_attention,
    visible,
)
from slimrl.models.native import ops
from slimrl.models.prefix import common_prefix_length

# A shared prefix is read once for all sequences if there are at least this many sequences, and this many shared tokens.
MIN_SHARING, MIN_SHARED = 4, 64
# Limits of padding in prefills: padding may multiply the cost of attention by at most `MOST_PADDED`. The cost of a span
# is its number of pairs of query and key, plus `FEWEST_PAIRS`.
MOST_PADDED, FEWEST_PAIRS = 1.5, 1 << 14


class SlotCache:
    """A KV cache. Each layer has keys and values of shape (slots + 1, capacity, H_kv * D), allocated on first use.

    The last slot is a spare: idle rows of a CUDA graph write to it (`inference/graphs.py`). The capacity is rounded up
    to whole blocks of positions; each attention plan chooses the layout within a block.
    """

    def __init__(self, num_slots: int, capacity: int) -> None:
        self.num_slots = num_slots
        self.capacity = _blocks(capacity)
        self.tokens: list[list[int]] = [[] for _ in range(num_slots)]
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}

    def layer(self, layer: int, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return the (keys, values) of a layer, with the dtype and device of `like`.

        New memory is filled with zeros. Attention multiplies masked positions by 0, and 0 times NaN would be NaN.
        """
        if layer not in self._layers:
            shape = (self.num_slots + 1, self.capacity, width)
            self._layers[layer] = (like.new_zeros(shape), like.new_zeros(shape))
        return self._layers[layer]

    def copy_prefix(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` tokens of slot `source` to slot `target`: their keys and values, and their record."""
        if source != target:
            # Copy whole blocks: within a block, the layout may interleave positions.
            end = _blocks(length)
            for keys, values in self._layers.values():
                keys[target, :end] = keys[source, :end]
                values[target, :end] = values[source, :end]
        # Always create a new list: the slot's previous sequence may still use the old list as `Request.held`.
        self.tokens[target] = self.tokens[source][:length]

    @property
    def bytes(self) -> int:
        """The size of the keys and values of all layers, in bytes."""
        return sum(part.nbytes for layer in self._layers.values() for part in layer)

    def offload(self) -> None:
        """Free the memory of the cache. The content of every slot is lost. The memory of a layer is allocated again
        when the layer is used."""
        self.clear()
        self._layers.clear()

    def clear(self) -> None:
        """Drop the record of every slot, so that no later request reuses the keys and values of old weights.

        The lists are replaced, not emptied, because running sequences still use their old lists (`Scheduler.clear`).
        """
        self.tokens = [[] for _ in range(self.num_slots)]


@dataclass(frozen=True, slots=True)
class Span:
    """The tokens of the sequence in `slot` from position `start` up to `end` (exclusive). One forward pass computes
    them."""

    slot: int
    start: int
    end: int


class CachePlan:
    """The attention plan for new tokens of several sequences in one row. A token attends to all positions of its slot
    up to its own position."""

    def __init__(self, cache: SlotCache, spans: Sequence[Span], device: torch.device) -> None:
        self._cache = cache
        self._sequences = spans
        self._device = device
        lengths = [span.end - span.start for span in spans]
        firsts = itertools.accumulate(lengths, initial=0)
        # The columns of `ops.store`: slot, first row, number of tokens, position of the first token.
        rows = [(s.slot, first, length, s.start) for s, first, length in zip(spans, firsts, lengths, strict=False)]
        self.spans = torch.tensor(rows, dtype=torch.int32)

    def blocks(self, layer: int, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
        return self._cache.layer(layer, width, like)

    def attend(self, inputs: LayerInputs) -> Tensor:
        if not ops.blocks_fit(inputs.query):
            return self._without_blocks.attend(inputs)
        keys, values = _layer(self._cache, inputs)
        query, key, value = (_tokens(x) for x in (inputs.query, inputs.key, inputs.value))
        # The kernel takes one stride for keys and values. Their strides differ if the values are not a view of the
        # joint projection.
        if len(key) > 1 and key.stride(0) != value.stride(0):
            key, value = key.contiguous(), value.contiguous()
        ops.store(key, value, keys, values, self.spans)
        return ops.attend(query, keys, values, self.spans, inputs.scale, inputs.window)[None]

    @functools.cached_property
    def _without_blocks(self) -> AttentionPlan:
        """The same attention plan, computed with PyTorch's operations. It is used for head sizes, dtypes and devices
        that the kernels do not support."""
        if all(span.end - span.start == 1 for span in self._sequences):
            return _DecodePlan(self._cache, self._sequences, self._device)
        return _PrefillPlan(self._cache, self._sequences, self._device)


class _PrefillPlan:
    """An attention plan for prefill, with one attention call per group of spans.

    The spans of a group are the rows of a batch, padded to the group's earliest start and latest end. The padding may
    have any queries, because its outputs are dropped. The causal mask hides the keys of the padding.
    """

    def __init__(self, cache: SlotCache, spans: Sequence[Span], device: torch.device) -> None:
        self._cache = cache
        firsts = itertools.accumulate((span.end - span.start for span in spans), initial=0)
        first_rows = dict(zip(spans, firsts, strict=False))
        places = [span.slot * cache.capacity + position for span in spans for position in range(span.start, span.end)]
        self._places_T = to_device(places, torch.long, device)
        self._groups = [_Group(spans, first_rows, device) for spans in _similar(spans)]
        # The index of each token's output among the outputs of all groups, padding included.
        sizes = (len(group.slots_G) * group.num_queries for group in self._groups)
        begins = itertools.accumulate(sizes, initial=0)
        found = {
            span: begin + row * group.num_queries + span.start - group.start
            for group, begin in zip(self._groups, begins, strict=False)
            for row, span in enumerate(group.spans)
        }
        outputs = [found[span] + number for span in spans for number in range(span.end - span.start)]
        self._outputs_T = to_device(outputs, torch.long, device)

    def attend(self, inputs: LayerInputs) -> Tensor:
        keys, values = _write(self._cache, inputs, self._places_T)
        out = torch.cat([group.attend(inputs, keys, values) for group in self._groups])
        return out.index_select(0, self._outputs_T)[None]


class _Group:
    """Spans whose attention is computed in one call. Each span is a row of a batch, padded to the positions from
    `start` to `end` of the span's slot.

    `first_rows` maps each span to the row of its first token in the forward pass.
    """

    def __init__(self, spans: Sequence[Span], first_rows: Mapping[Span, int], device: torch.device) -> None:
        self.spans = spans
        self.start, self.end = min(span.start for span in spans), max(span.end for span in spans)
        self.num_queries = self.end - self.start
        self.slots_G = to_device([span.slot for span in spans], torch.long, device)
        rows = [0] * (len(spans) * self.num_queries)  # any query can fill the padding
        for number, span in enumerate(spans):
            begin = number * self.num_queries + span.start - self.start
            rows[begin : begin + span.end - span.start] = range(
                first_rows[span], first_rows[span] + span.end - span.start
            )
        self._rows = to_device(rows, torch.long, device)
        self._masks: dict[int, Tensor] = {}

    def attend(self, inputs: LayerInputs, keys: Tensor, values: Tensor) -> Tensor:
        """Return the attention outputs (G * num_queries, H, D), padding included."""
        G, H_kv = len(self.slots_G), inputs.key.shape[1]
        query = inputs.query[0].index_select(1, self._rows).unflatten(1, (G, self.num_queries)).transpose(0, 1)
        # A prefill may follow a reused prefix, so its queries also attend to earlier positions of the slot, as far as
        # the first query's window reaches.
        first = max(0, self.start + 1 - inputs.window) if inputs.window else 0
        key, value = (_heads(kv[:, first : self.end].index_select(0, self.slots_G), H_kv) for kv in (keys, values))
        out = gqa_attention(query, key, value, self._mask(first, inputs.window, keys.device), inputs.scale)
        return out.transpose(1, 2).flatten(0, 1)

    def _mask(self, first: int, window: int, device: torch.device) -> Tensor | None:
        """Return the mask of the queries over the slot's positions from `first` to `end`; None if every query sees all
        of them."""
        if self.num_queries == 1:
            return None  # all positions are visible
        if not window or window >= self.end:
            # The last query sees all positions, and each earlier query one position less. PyTorch's kernels have this
            # case built in.
            return causal_lower_right(self.num_queries, self.end)
        if window not in self._masks:
            positions = torch.arange(first, self.end, device=device)
            self._masks[window] = visible(positions[self.start - first :, None], positions[None], window)[None, None]
        return self._masks[window]


def _similar(spans: Sequence[Span]) -> list[list[Span]]:
    """Group similar spans. A span joins the last group if the padded group's attention then costs at most `MOST_PADDED`
    times as much as without padding."""

    def pairs(start: int, end: int) -> int:
        return FEWEST_PAIRS + (end - start) * end

    groups: list[list[Span]] = []
    longest = own = 0  # the last group's largest end, and its number of pairs without padding
    for span in sorted(spans, key=lambda span: (span.start, span.end)):
        padded_end, unpadded = max(longest, span.end), own + pairs(span.start, span.end)
        if groups and (len(groups[-1]) + 1) * pairs(groups[-1][0].start, padded_end) <= MOST_PADDED * unpadded:
            groups[-1].append(span)
            longest, own = padded_end, unpadded
        else:
            groups.append([span])
            longest, own = span.end, pairs(span.start, span.end)
    return groups


class RowsPlan:
    """An attention plan for several sequences with one new token each, in one batched attention call.

    Row r of the batch is slot r, read in place. `positions_R` has the position of each row's new token. The new keys
    and values are written to the rows `places_B` of the cache, seen as (slots * capacity, H_kv * D). Only the first
    `num_keys` positions are read. CUDA graphs can record this plan, because all numbers that differ between steps are
    in tensors.
    """

    _num_shared = 0  # the length of a prefix that all sequences share, which is read once
    _gathered_B: Tensor | None = None  # if set, the batch is a copy of these slots instead
    _slots_B: Tensor | None = None  # if set, the slots of the tokens; other rows are idle, and their output is dropped
    _sharer = slice(0, 1)  # the slot from which the shared prefix is read

    def __init__(self, cache: SlotCache, positions_R: Tensor, places_B: Tensor, num_keys: int) -> None:
        self._cache = cache
        self._positions_R = positions_R
        self._places_B = places_B
        self._num_keys = num_keys
        self._masks: dict[int, Tensor] = {}

    def attend(self, inputs: LayerInputs) -> Tensor:
        keys, values = _write(self._cache, inputs, self._places_B)
        query = inputs.query[0].transpose(0, 1)[:, :, None]  # (B, H, 1, D)
        num_rows, H_kv = len(self._positions_R), inputs.key.shape[1]
        # With sliding attention, no prefix is shared: most of it is outside of the window, and windows differ from row
        # to row.
        begin = 0 if inputs.window else self._num_shared
        own = [_heads(self._rows(kv[:, begin : self._num_keys], num_rows), H_kv) for kv in (keys, values)]
        if self._slots_B is not None:
            # Put each query in the row of its slot; idle rows get zeros.
            query = query.new_zeros(num_rows, *query.shape[1:]).index_copy_(0, self._slots_B, query)
        # All layers with the same window share a mask.
        if inputs.window not in self._masks:
            mask = _scores_mask(self._positions_R, self._num_keys, inputs.window, query.dtype)
            self._masks[inputs.window] = mask
        mask = self._masks[inputs.window][..., begin:]
        if begin:  # the shared tokens have equal keys and values in all slots
            prefix = [_heads(kv[self._sharer, :begin], H_kv) for kv in (keys, values)]
            out = attention_after_prefix(query, prefix, own, mask, inputs.scale)
        else:
            out = gqa_attention(query, own[0], own[1], mask, inputs.scale)
        if self._slots_B is not None:
            out = out.index_select(0, self._slots_B)
        return out[:, :, 0][None]

    def _rows(self, kv: Tensor, num_rows: int) -> Tensor:
        return kv[:num_rows] if self._gathered_B is None else kv.index_select(0, self._gathered_B)


class _DecodePlan(RowsPlan):
    """An attention plan for one new token per slot, without a CUDA graph.

    The slots from 0 to the highest used slot are read in place if at least a quarter of these slots are used.
    Otherwise, the used slots are copied, which is cheaper than computing all idle slots. A prefix that all sequences
    share is read only once, from the first used slot. Only a CPU needs this plan, because a GPU decodes with graphs.
    """

    def __init__(self, cache: SlotCache, spans: Sequence[Span], device: torch.device) -> None:
        slots, positions = [span.slot for span in spans], [span.start for span in spans]
        slots_B, positions_B = (to_device(numbers, torch.long, device) for numbers in (slots, positions))
        super().__init__(cache, positions_B, slots_B * cache.capacity + positions_B, max(positions) + 1)
        self._num_shared = _num_shared([cache.tokens[slot] for slot in slots])
        self._sharer = slice(slots[0], slots[0] + 1)
        num_rows = max(slots) + 1
        if 4 * len(slots) < num_rows:
            self._gathered_B = slots_B
        elif slots != list(range(num_rows)):
            self._slots_B = slots_B
            # Idle rows see one position after the shared prefix (zeros or old keys), because a softmax over no
            # positions would be NaN.
            self._positions_R = torch.full((num_rows,), self._num_shared, device=device)
            self._positions_R[slots_B] = positions_B


def _num_shared(sequences: Sequence[Sequence[int]]) -> int:
    """Return the length of the prefix that all sequences share; 0 if sharing would gain nothing.

    `sequences` are records of slots. Equal records mean equal keys and values, because a weight update clears all
    records.
    """
    if len(sequences) < MIN_SHARING:
        return 0
    num = min(common_prefix_length(sequences[0], other) for other in sequences[1:])
    return num if num >= MIN_SHARED else 0


def _scores_mask(positions_S: Tensor, num_keys: int, window: int, dtype: torch.dtype) -> Tensor:
    """Return a mask (S, 1, 1, num_keys) of 0 and -inf to add to the scores. A boolean mask would have to be converted
    in each layer."""
    keys = torch.arange(num_keys, device=positions_S.device)
    mask = visible(positions_S[:, None], keys[None], window)[:, None, None]
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, -torch.inf)


def _layer(cache: SlotCache, inputs: LayerInputs) -> tuple[Tensor, Tensor]:
    _, H_kv, _, D = inputs.key.shape
    return cache.layer(inputs.layer, H_kv * D, inputs.key)


def _blocks(length: int) -> int:
    """Round a length up to whole blocks of positions."""
    return -(-length // ops.POSITIONS) * ops.POSITIONS


def _tokens(heads: Tensor) -> Tensor:
    """Return the heads (1, H, T, D) as (T, H, D), where each token's heads are contiguous."""
    tokens = heads[0].transpose(0, 1)
    return tokens if tokens[0].is_contiguous() else tokens.contiguous()


def _write(cache: SlotCache, inputs: LayerInputs, places_T: Tensor) -> tuple[Tensor, Tensor]:
    """Write the new keys and values to the rows `places_T` of the cache, seen as (slots * capacity, H_kv * D). Return
    the layer's whole (keys, values)."""
    layer = _layer(cache, inputs)
    for stored, heads in zip(layer, (inputs.key, inputs.value), strict=True):
        stored.flatten(0, 1).index_copy_(0, places_T, heads[0].transpose(0, 1).flatten(1))
    return layer


def _heads(rows: Tensor, num_heads: int) -> Tensor:
    """Return rows of the cache (S, L, H_kv * D) as heads (S, H_kv, L, D), without a copy."""
    S, L, width = rows.shape
    return rows.view(S, L, num_heads, width // num_heads).transpose(1, 2)
