"""Lays samples end to end in one row of tokens, without padding, and computes a group's common prompt once.

A `Pack` is the input of one forward. The model's matrices see the flat row (T,); only attention needs to know that it
is made of many sequences, and `PackedPlan` (`trainer/attention.py`) tells it: each stretch of queries attends to its
own keys and, for a completion, to the shared prompt's. The gradient equals that of padded, separate sequences.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from slimrl.types import Sample


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
