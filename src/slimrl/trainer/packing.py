"""Lays samples end to end in one row of tokens, without padding, and computes a group's common prompt once.

A `Pack` is the input of one forward. The model's matrices see the flat row (T,); only attention needs to know that it
is made of many sequences, and `PackedPlan` tells it: each stretch of queries attends to its own keys and, for a
completion, to the shared prompt's. The gradient equals that of padded, separate sequences.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from slimrl.models.attention import LayerInputs, grouped_attention, visible
from slimrl.types import Sample

# A bucket of stretches is padded to its longest; a new bucket starts where padding would exceed this share of work.
MAX_PADDING = 1.5
# Up to this many queries a sequence, a CPU computes attention and its gradient faster in float32: PyTorch's bfloat16
# kernel spends most of the backward pass on rearranging small blocks (29 sequences of 63: 36 against 17 ms).
SHORT = 256


@dataclass(frozen=True, slots=True)
class Stretch:
    """Queries `start..end` of the row, which see the `prefix` stretch of keys (all of it) and themselves (causally)."""

    start: int
    end: int
    prefix_start: int
    prefix_end: int

    @property
    def num_queries(self) -> int:
        return self.end - self.start

    @property
    def num_keys(self) -> int:
        return self.num_queries + self.prefix_end - self.prefix_start


@dataclass(frozen=True, slots=True)
class Pack:
    """One forward's worth of samples. _T row positions, _N trained tokens in the order of the samples.

    `source_N` is the row position whose hidden state predicts trained token n, `sample_N` the index of its sample in
    the batch. A prompt shared by G samples stands once in the row; its last position then predicts G first tokens.
    """

    token_ids_T: Tensor
    positions_T: Tensor
    stretches: tuple[Stretch, ...]
    source_N: Tensor
    target_N: Tensor
    sample_N: Tensor


@dataclass(slots=True)
class _Row:
    """A pack in the making."""

    token_ids: list[int]
    positions: list[int]
    stretches: list[Stretch]
    source: list[int]
    target: list[int]
    sample: list[int]

    def add(self, token_ids: Sequence[int], first_position: int, prefix: tuple[int, int]) -> int:
        """Append a stretch; returns where it starts in the row."""
        start = len(self.token_ids)
        self.token_ids.extend(token_ids)
        self.positions.extend(range(first_position, first_position + len(token_ids)))
        self.stretches.append(Stretch(start, len(self.token_ids), *prefix))
        return start

    def finish(self, device: torch.device) -> Pack:
        return Pack(
            token_ids_T=torch.tensor(self.token_ids, device=device),
            positions_T=torch.tensor(self.positions, device=device),
            stretches=tuple(self.stretches),
            source_N=torch.tensor(self.source, device=device),
            target_N=torch.tensor(self.target, device=device),
            sample_N=torch.tensor(self.sample, device=device),
        )


def pack_samples(samples: Sequence[Sample], max_tokens: int, device: torch.device) -> list[Pack]:
    """All samples in packs of at most `max_tokens` row tokens (a single longer sample gets a pack of its own).

    Samples of one group that begin with the same untrained tokens share them if they fall into the same pack.
    """
    packs: list[Pack] = []
    row, open_prompt = _Row([], [], [], [], [], []), None
    order = sorted(range(len(samples)), key=lambda b: (samples[b].group_id, prompt_of(samples[b]), b))
    for b in order:
        prompt = prompt_of(samples[b])
        rest = len(samples[b].token_ids_T) - len(prompt)
        shared = open_prompt is not None and open_prompt[0] == (samples[b].group_id, prompt)
        needed = rest if shared else rest + len(prompt)
        if row.token_ids and len(row.token_ids) + needed > max_tokens:
            packs.append(row.finish(device))
            row, shared = _Row([], [], [], [], [], []), False
        if not shared:
            open_prompt = ((samples[b].group_id, prompt), row.add(prompt, 0, (0, 0)))
        assert open_prompt is not None
        _add_completion(row, samples[b], b, open_prompt[1], len(prompt))
    if row.token_ids:
        packs.append(row.finish(device))
    return packs


def prompt_of(sample: Sample) -> tuple[int, ...]:
    """The tokens before the first trained one."""
    return sample.token_ids_T[: sample.loss_mask_T.index(True)]


def _add_completion(row: _Row, sample: Sample, index: int, prompt_start: int, prompt_len: int) -> None:
    """Append the sample's tokens after its prompt; the last one feeds nothing unless it is there to be fed."""
    completion = sample.token_ids_T[prompt_len:-1]
    start = row.add(completion, prompt_len, (prompt_start, prompt_start + prompt_len)) if completion else 0
    for t in range(prompt_len, len(sample.token_ids_T)):
        if sample.loss_mask_T[t]:
            row.source.append(prompt_start + prompt_len - 1 if t == prompt_len else start + t - 1 - prompt_len)
            row.target.append(sample.token_ids_T[t])
            row.sample.append(index)


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
    """The attention plan of a pack (see `models/attention.py`)."""

    def __init__(self, pack: Pack) -> None:
        device = pack.token_ids_T.device
        self._num_tokens = len(pack.token_ids_T)
        self._buckets = [_make_bucket(stretches, device) for stretches in _similar(pack.stretches)]
        order = torch.cat([bucket.scatter for bucket in self._buckets])
        self._restore_T = torch.empty_like(order)
        self._restore_T[order] = torch.arange(self._num_tokens, device=device)
        self._masks: dict[tuple[int, int], Tensor] = {}

    def attend(self, inputs: LayerInputs) -> Tensor:
        query, key, value = (x[0].transpose(0, 1) for x in (inputs.query, inputs.key, inputs.value))
        outputs = []
        for number, bucket in enumerate(self._buckets):
            q = _rows(query, bucket.query_index)
            k, v = _rows(key, bucket.key_index), _rows(value, bucket.key_index)
            if q.device.type == "cpu" and q.shape[2] <= SHORT:
                q, k, v = q.float(), k.float(), v.float()
            out = grouped_attention(q, k, v, self._mask(number, inputs.window), inputs.scale).to(query.dtype)
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


def _similar(stretches: Sequence[Stretch]) -> list[list[Stretch]]:
    """Split into batches whose padded area is at most `MAX_PADDING` times the real one."""
    buckets: list[list[Stretch]] = []
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


def _make_bucket(stretches: Sequence[Stretch], device: torch.device) -> _Bucket:
    Lq, Lk = max(s.num_queries for s in stretches), max(s.num_keys for s in stretches)

    def tensor(values: Sequence[object]) -> Tensor:
        return torch.tensor(values, device=device)

    return _Bucket(
        query_index=tensor([_padded(range(s.start, s.end), Lq) for s in stretches]),
        key_index=tensor(
            [_padded([*range(s.prefix_start, s.prefix_end), *range(s.start, s.end)], Lk) for s in stretches]
        ),
        query_order=tensor([_padded(range(s.num_keys - s.num_queries, s.num_keys), Lq) for s in stretches]),
        key_order=tensor([_padded(range(s.num_keys), Lk) for s in stretches]),
        real_key=tensor([[k < s.num_keys for k in range(Lk)] for s in stretches]),
        scatter=tensor([t for s in stretches for t in range(s.start, s.end)]),
        gather=tensor([row * Lq + t for row, s in enumerate(stretches) for t in range(s.num_queries)]),
    )


def _padded(values: Sequence[int], length: int) -> list[int]:
    return [*values, *[0] * (length - len(values))]
