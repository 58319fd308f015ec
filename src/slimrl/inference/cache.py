"""The KV cache: a fixed number of slots, each with the keys and values of one sequence. Knows nothing about scheduling.

A slot remembers which token ids its keys and values belong to, so that a later request that begins with the same
tokens (the group's prompt, the conversation so far) starts from them. `PrefillPlan` and `DecodePlan` are the attention
plans that fill and read the slots during one forward (see `models/attention.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from slimrl.models.attention import LayerInputs, grouped_attention, visible


class SlotCache:
    """Keys and values per layer, each (slots, H_kv, capacity, D), allocated when the layer is first seen."""

    def __init__(self, num_slots: int, capacity: int) -> None:
        self.num_slots = num_slots
        self.capacity = capacity
        self.tokens: list[list[int]] = [[] for _ in range(num_slots)]
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}

    def layer(self, inputs: LayerInputs) -> tuple[Tensor, Tensor]:
        """The (keys, values) of this layer; zeros where nothing was written, so that masked garbage stays finite."""
        if inputs.layer not in self._layers:
            _, H_kv, _, D = inputs.key.shape
            shape = (self.num_slots, H_kv, self.capacity, D)
            self._layers[inputs.layer] = (inputs.key.new_zeros(shape), inputs.value.new_zeros(shape))
        return self._layers[inputs.layer]

    def copy_prefix(self, source: int, target: int, length: int) -> None:
        """Make the first `length` tokens of `target` those of `source`."""
        if source != target:
            for keys, values in self._layers.values():
                keys[target, :, :length] = keys[source, :, :length]
                values[target, :, :length] = values[source, :, :length]
        self.tokens[target] = self.tokens[source][:length]

    def forget(self) -> None:
        """Drop every slot's content: the weights it was computed from are gone."""
        self.tokens = [[] for _ in range(self.num_slots)]


def shared_prefix(a: Sequence[int], b: Sequence[int]) -> int:
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


class PrefillPlan:
    """Several sequences' new tokens laid end to end in one row; each sees its own slot's earlier tokens and itself."""

    def __init__(self, cache: SlotCache, spans: Sequence[Span]) -> None:
        self._cache = cache
        self._spans = spans
        self._masks: dict[tuple[int, int, int], Tensor] = {}

    def attend(self, inputs: LayerInputs) -> Tensor:
        keys, values = self._cache.layer(inputs)
        outputs, offset = [], 0
        for span in self._spans:
            rows = slice(offset, offset + span.end - span.start)
            keys[span.slot, :, span.start : span.end] = inputs.key[0, :, rows]
            values[span.slot, :, span.start : span.end] = inputs.value[0, :, rows]
            slot = slice(span.slot, span.slot + 1)
            known_keys, known_values = keys[slot, :, : span.end], values[slot, :, : span.end]
            mask = self._mask(span, inputs.window, keys.device)
            outputs.append(grouped_attention(inputs.query[:, :, rows], known_keys, known_values, mask, inputs.scale))
            offset = rows.stop
        return torch.cat(outputs, dim=2).transpose(1, 2)

    def _mask(self, span: Span, window: int, device: torch.device) -> Tensor:
        key = (span.start, span.end, window)
        if key not in self._masks:
            positions = torch.arange(span.end, device=device)
            self._masks[key] = visible(positions[span.start :, None], positions[None], window)[None, None]
        return self._masks[key]


class DecodePlan:
    """One new token for each of several slots. Reads the cache in place unless few of its slots are in use."""

    def __init__(self, cache: SlotCache, slots: Sequence[int], positions: Sequence[int], device: torch.device) -> None:
        self._cache = cache
        self._slots_B = torch.tensor(slots, device=device)
        self._positions_B = torch.tensor(positions, device=device)
        self._num_keys = max(positions) + 1
        num_rows = max(slots) + 1
        self._dense = list(slots) == list(range(num_rows))
        self._in_place = 4 * len(slots) >= num_rows
        if self._in_place:
            # Idle slots in between are computed along and thrown away; position 0 keeps their softmax finite.
            self._row_positions = torch.zeros(num_rows, dtype=torch.long, device=device)
            self._row_positions[self._slots_B] = self._positions_B
        else:
            self._row_positions = self._positions_B
        self._masks: dict[int, Tensor] = {}

    def attend(self, inputs: LayerInputs) -> Tensor:
        keys, values = self._cache.layer(inputs)
        keys[self._slots_B, :, self._positions_B] = inputs.key[0].transpose(0, 1)
        values[self._slots_B, :, self._positions_B] = inputs.value[0].transpose(0, 1)
        query = inputs.query[0].transpose(0, 1)[:, :, None]
        num_rows = len(self._row_positions)
        if self._in_place:
            keys, values = keys[:num_rows, :, : self._num_keys], values[:num_rows, :, : self._num_keys]
        else:
            keys, values = (kv[:, :, : self._num_keys].index_select(0, self._slots_B) for kv in (keys, values))
        if self._in_place and not self._dense:
            query = query.new_zeros(num_rows, *query.shape[1:]).index_copy_(0, self._slots_B, query)
        out = grouped_attention(query, keys, values, self._mask(inputs.window), inputs.scale)
        if self._in_place and not self._dense:
            out = out.index_select(0, self._slots_B)
        return out[:, :, 0][None]

    def _mask(self, window: int) -> Tensor:
        if window not in self._masks:
            keys = torch.arange(self._num_keys, device=self._row_positions.device)
            self._masks[window] = visible(self._row_positions[:, None], keys[None], window)[:, None, None]
        return self._masks[window]
