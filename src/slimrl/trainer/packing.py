"""Lays samples end to end in one row of tokens, without padding, and computes what they have in common once.

Samples that begin with the same tokens share them, however many turns these are: the instructions of an environment,
the prompt of a group, the calls and results that several of its rollouts began with. So the row is a tree of stretches,
and its length is the number of unique tokens. A shared token may be trained, by each sample with its own advantage.

A `Pack` is the input of one forward. The model's matrices see the flat row (T,); only attention needs to know that it
is made of many sequences, and `PackedPlan` (`trainer/attention.py`) tells it: each stretch of queries attends to the
stretches that it continues, and causally to itself. The gradient equals that of padded, separate sequences.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from slimrl.types import Sample


@dataclass(frozen=True, slots=True)
class Segment:
    """The tokens `start..end` of the row. They continue the stretch with the number `parent` (-1: none), and so all
    that it continues; `position` is that of the first."""

    start: int
    end: int
    parent: int
    position: int

    @property
    def num_queries(self) -> int:
        return self.end - self.start

    @property
    def num_keys(self) -> int:
        return self.position + self.num_queries


@dataclass(frozen=True, slots=True)
class Pack:
    """One forward's worth of samples. _T row positions, _N trained tokens in the order of the samples.

    `source_N` is the row position whose hidden state predicts trained token n, `sample_N` the index of its sample in
    the batch. A position that G samples share may predict G tokens.
    """

    token_ids_T: Tensor
    positions_T: Tensor
    stretches: tuple[Segment, ...]
    source_N: Tensor
    target_N: Tensor
    sample_N: Tensor

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return max(stretch.num_keys for stretch in self.stretches)

    @property
    def mean_keys(self) -> float:
        """What a token attends to on average, as if it saw its own stretch to the end."""
        pairs = sum(stretch.num_queries * stretch.num_keys for stretch in self.stretches)
        return pairs / len(self.token_ids_T)


class _Row:
    """A pack in the making. `latest` are the tokens of the sample added last, `places` where they are in the row, and
    `path` the stretches that they go through."""

    def __init__(self) -> None:
        self.token_ids, self.positions = list[int](), list[int]()
        self.stretches: list[Segment] = []
        self.source, self.target, self.sample = list[int](), list[int](), list[int]()
        self.latest: tuple[int, ...] = ()
        self.places, self.path = list[int](), list[int]()

    def num_shared(self, token_ids: Sequence[int]) -> int:
        """How many of the tokens are those with which the latest sample began."""
        pairs = zip(token_ids, self.latest, strict=False)
        different = (t for t, (ours, theirs) in enumerate(pairs) if ours != theirs)
        return next(different, min(len(token_ids), len(self.latest)))

    def add(self, sample: Sample, index: int) -> None:
        """Append what the latest sample does not have. The last token feeds nothing: it is only predicted."""
        fed = sample.token_ids_T[:-1]
        shared = self.num_shared(fed)
        self._cut(shared)
        if shared < len(fed):
            start, parent = len(self.token_ids), self.path[-1] if self.path else -1
            self.token_ids.extend(fed[shared:])
            self.positions.extend(range(shared, len(fed)))
            self.path.append(len(self.stretches))
            self.stretches.append(Segment(start, len(self.token_ids), parent, shared))
            self.places.extend(range(start, len(self.token_ids)))
        self.latest = fed
        for t, trained in enumerate(sample.loss_mask_T):
            if trained:
                self.source.append(self.places[t - 1])
                self.target.append(sample.token_ids_T[t])
                self.sample.append(index)

    def finish(self, device: torch.device) -> Pack:
        return Pack(
            token_ids_T=torch.tensor(self.token_ids, device=device),
            positions_T=torch.tensor(self.positions, device=device),
            stretches=tuple(self.stretches),
            source_N=torch.tensor(self.source, device=device),
            target_N=torch.tensor(self.target, device=device),
            sample_N=torch.tensor(self.sample, device=device),
        )

    def _cut(self, length: int) -> None:
        """Let the path end after `length` tokens; a stretch that goes on from there becomes two."""
        del self.places[length:]
        while self.path and self.stretches[self.path[-1]].position >= length:
            self.path.pop()
        if not self.path:
            return
        number = self.path[-1]
        cut = self.stretches[number]
        middle = cut.start + length - cut.position
        if middle < cut.end:
            rest = len(self.stretches)
            self.stretches = [replace(s, parent=rest) if s.parent == number else s for s in self.stretches]
            self.stretches[number] = replace(cut, end=middle)
            self.stretches.append(Segment(middle, cut.end, number, length))


def pack_samples(samples: Sequence[Sample], max_tokens: int, device: torch.device) -> list[Pack]:
    """All samples in packs of at most `max_tokens` row tokens (a single longer sample gets a pack of its own).

    In the order of their tokens, so that those with the most in common are neighbours; nothing is shared by packs.
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
