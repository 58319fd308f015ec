"""Concatenates samples into one row of tokens, without padding. A prefix that several samples share appears once.

Samples that start with the same tokens share these tokens in the row. They may share the instructions of an
environment, the prompt of a group, or whole turns. So the row is a tree of segments. Several samples may train a shared
token, each with another advantage. For example, the samples "1 2 3 4" and "1 2 5" become the row 1 2 3. Their last
tokens, 4 and 5, are predicted but not read:

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
from slimrl.models.prefix import common_prefix_length
from slimrl.types import Sample


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the row: its tokens from `start` up to `end`. They continue the segment with the index `parent`
    (-1: no parent). `position` is the first token's position in its sequence."""

    start: int
    end: int
    parent: int
    position: int

    @property
    def num_queries(self) -> int:
        """The number of tokens in the segment."""
        return self.end - self.start

    @property
    def num_keys(self) -> int:
        """The number of tokens that the segment's last token attends to: itself and all earlier tokens of the
        sequence."""
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


def ends_of_trees(segments: Sequence[Segment]) -> list[int]:
    """Return for each segment the end of its subtree: the row position after the last token that continues the segment.
    If no token continues it, this is the end of the segment.

    All tokens that continue a segment lie directly behind it. So all positions from a token up to this end can attend
    to the token.
    """
    ends = [segment.end for segment in segments]
    # Visit the last segment first, so that a segment's end is final before its parent reads it.
    for number in sorted(range(len(segments)), key=lambda n: -segments[n].start):
        if (parent := segments[number].parent) >= 0:
            ends[parent] = max(ends[parent], ends[number])
    return ends


class _Row:
    """A pack under construction.

    Samples are added in sorted order, so a new sample has its longest common prefix with the previous sample. Only the
    previous sample is stored. `latest` are its tokens, `places` are the row positions of its tokens, and `path` are the
    indices of its segments, starting at the root.
    """

    def __init__(self) -> None:
        self.token_ids, self.positions = list[int](), list[int]()
        self.segments: list[Segment] = []
        self.source, self.target, self.sample = list[int](), list[int](), list[int]()
        self.latest: tuple[int, ...] = ()
        self.places, self.path = list[int](), list[int]()

    def add(self, sample: Sample, index: int) -> None:
        """Append a sample without the prefix that it shares with the latest sample. `index` is the sample's index in
        the batch."""
        fed = sample.token_ids_T[:-1]  # the last token is predicted but not read
        shared = common_prefix_length(fed, self.latest)
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
        """Shorten `path` and `places` to the first `length` tokens of the latest sample. If a segment spans this
        length, split the segment there."""
        del self.places[length:]
        while self.path and self.segments[self.path[-1]].position >= length:
            self.path.pop()
        if not self.path:
            return
        number = self.path[-1]
        cut = self.segments[number]
        middle = cut.start + length - cut.position
        if middle < cut.end:
            # The first half keeps the segment's index. The second half gets a new index. Segments that continued the
            # whole segment now continue the second half.
            rest = len(self.segments)
            self.segments = [replace(s, parent=rest) if s.parent == number else s for s in self.segments]
            self.segments[number] = replace(cut, end=middle)
            self.segments.append(Segment(middle, cut.end, number, length))


def empty_pack(device: torch.device) -> Pack:
    """Return a pack with one token that is not trained."""
    row = _Row()
    row.token_ids, row.positions, row.segments = [0], [0], [Segment(0, 1, -1, 0)]
    return row.finish(device)


def pack_samples(samples: Sequence[Sample], max_tokens: int, device: torch.device) -> list[Pack]:
    """Return all samples in packs. A row has at most `max_tokens` tokens; a longer sample gets a separate pack.

    Samples are sorted by their tokens, so samples with long common prefixes are neighbours. Tokens are shared only
    within a pack.
    """
    packs: list[Pack] = []
    row = _Row()
    for b in sorted(range(len(samples)), key=lambda b: (samples[b].token_ids_T, b)):
        fed = samples[b].token_ids_T[:-1]
        if row.token_ids and len(row.token_ids) + len(fed) - common_prefix_length(fed, row.latest) > max_tokens:
            packs.append(row.finish(device))
            row = _Row()
        row.add(samples[b], b)
    if row.token_ids:
        packs.append(row.finish(device))
    return packs
