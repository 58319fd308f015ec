"""Concatenates samples into one row of tokens, without padding. A prefix that several samples share appears once.

Samples that start with the same tokens share them, over any number of turns: the instructions of an environment, the
prompt of a group, the first calls and results of several of its rollouts. So the row is a tree of segments, and its
length is the number of unique tokens. Several samples may train a shared token, each with its own advantage. The
samples "1 2 3 4" and "1 2 5" become the row 1 2 3. Their last tokens, 4 and 5, are predicted but not read:

    Segment(start=0, end=2, parent=-1, position=0)     1 2    shared
    Segment(start=2, end=3, parent=0, position=2)      3      the rest of the first sample

A `Pack` is the input of one forward. The model's matrices see the flat row (T,). Only attention needs to know that the
row consists of sequences: a segment's queries attend to all segments that it continues, and causally to itself
(`trainer/attention.py`). The gradient equals the gradient of separate, padded sequences.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from slimrl.models.device import to_device
from slimrl.types import Sample


@dataclass(frozen=True, slots=True)
class Segment:
    """The tokens from `start` up to `end` of the row. They continue the segment with the number `parent` (-1: none).
    `position` is the first token's position in its sequence."""

    start: int
    end: int
    parent: int
    position: int

    @property
    def num_queries(self) -> int:
        """The number of the segment's own tokens."""
        return self.end - self.start

    @property
    def num_keys(self) -> int:
        """The number of tokens that the segment's last token attends to: itself and all before it in the sequence."""
        return self.position + self.num_queries


@dataclass(frozen=True, slots=True)
class Pack:
    """The samples of one forward. _T: positions in the row; _N: trained tokens in the order of the samples.

    The hidden state at row position `source_N` predicts the token `target_N`. `sample_N` is the index of this token's
    sample in the batch. A position that G samples share may predict G tokens.
    """

    token_ids_T: Tensor
    positions_T: Tensor
    segments: tuple[Segment, ...]
    source_N: Tensor
    target_N: Tensor
    sample_N: Tensor

    @property
    def longest(self) -> int:
        """The number of tokens of the longest sequence."""
        return max(segment.num_keys for segment in self.segments)

    @property
    def mean_keys(self) -> float:
        """The mean number of keys per query, as if each query saw all of its segment's own keys."""
        pairs = sum(segment.num_queries * segment.num_keys for segment in self.segments)
        return pairs / len(self.token_ids_T)


def ends_of_trees(segments: Sequence[Segment]) -> list[int]:
    """Return for each segment the end of its tree: the row position after the last token that continues the segment, or
    the segment's own end.

    All tokens that continue a segment lie directly behind it. So a token is visible from its own position up to this
    end.
    """
    ends = [segment.end for segment in segments]
    # Visit the last segment first, so that a segment's end is final before its parent reads it.
    for number in sorted(range(len(segments)), key=lambda n: -segments[n].start):
        if (parent := segments[number].parent) >= 0:
            ends[parent] = max(ends[parent], ends[number])
    return ends


class _Row:
    """A pack under construction.

    Samples are added in sorted order, so a new sample shares its longest prefix with the previous sample. Only the
    previous sample is stored: `latest` are its tokens, `places` the positions of these tokens in the row, and `path`
    the numbers of their segments, starting at the root.
    """

    def __init__(self) -> None:
        self.token_ids, self.positions = list[int](), list[int]()
        self.segments: list[Segment] = []
        self.source, self.target, self.sample = list[int](), list[int](), list[int]()
        self.latest: tuple[int, ...] = ()
        self.places, self.path = list[int](), list[int]()

    def num_shared(self, token_ids: Sequence[int]) -> int:
        """Return the length of the longest common prefix with the latest sample."""
        pairs = zip(token_ids, self.latest, strict=False)
        different = (t for t, (ours, theirs) in enumerate(pairs) if ours != theirs)
        return next(different, min(len(token_ids), len(self.latest)))

    def add(self, sample: Sample, index: int) -> None:
        """Append sample number `index` of the batch, without the prefix that it shares with the latest sample."""
        fed = sample.token_ids_T[:-1]  # the last token is predicted, and predicts nothing
        shared = self.num_shared(fed)
        self._cut(shared)
        if shared < len(fed):
            start, parent = len(self.token_ids), self.path[-1] if self.path else -1
            self.token_ids.extend(fed[shared:])
            self.positions.extend(range(shared, len(fed)))
            self.path.append(len(self.segments))
            self.segments.append(Segment(start, len(self.token_ids), parent, shared))
            self.places.extend(range(start, len(self.token_ids)))
        self.latest = fed
        for t, trained in enumerate(sample.loss_mask_T):
            if trained:
                self.source.append(self.places[t - 1])
                self.target.append(sample.token_ids_T[t])
                self.sample.append(index)

    def finish(self, device: torch.device) -> Pack:
        def tensor(numbers: Sequence[int]) -> Tensor:
            return to_device(numbers, torch.long, device)

        return Pack(
            token_ids_T=tensor(self.token_ids),
            positions_T=tensor(self.positions),
            segments=tuple(self.segments),
            source_N=tensor(self.source),
            target_N=tensor(self.target),
            sample_N=tensor(self.sample),
        )

    def _cut(self, length: int) -> None:
        """Shorten the path to its first `length` tokens. A segment that extends beyond them is split in two."""
        del self.places[length:]
        while self.path and self.segments[self.path[-1]].position >= length:
            self.path.pop()
        if not self.path:
            return
        number = self.path[-1]
        cut = self.segments[number]
        middle = cut.start + length - cut.position
        if middle < cut.end:
            # The first half keeps the segment's number. The second half gets a new number. Segments that continued the
            # whole segment now continue the second half.
            rest = len(self.segments)
            self.segments = [replace(s, parent=rest) if s.parent == number else s for s in self.segments]
            self.segments[number] = replace(cut, end=middle)
            self.segments.append(Segment(middle, cut.end, number, length))


def empty_pack(device: torch.device) -> Pack:
    """Return a pack of one token that trains nothing."""
    row = _Row()
    row.token_ids, row.positions, row.segments = [0], [0], [Segment(0, 1, -1, 0)]
    return row.finish(device)


def pack_samples(samples: Sequence[Sample], max_tokens: int, device: torch.device) -> list[Pack]:
    """Return all samples in packs of at most `max_tokens` row tokens; a longer sample gets its own pack.

    Samples are sorted by their tokens, so samples with long common prefixes are neighbours. Packs share no tokens with
    each other.
    """
    packs: list[Pack] = []
    row = _Row()
    for b in sorted(range(len(samples)), key=lambda b: (samples[b].token_ids_T, b)):
        fed = samples[b].token_ids_T[:-1]
        if row.token_ids and len(row.token_ids) + len(fed) - row.num_shared(fed) > max_tokens:
            packs.append(row.finish(device))
            row = _Row()
        row.add(samples[b], b)
    if row.token_ids:
        packs.append(row.finish(device))
    return packs
