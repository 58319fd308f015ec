"""Processes with equal weights that share the work of a step: which packs each of them computes, and their sums.

Every process is given the whole batch and lays it out in the same way. A token is weighed by the whole batch
(`losses.token_weights`), so the batch's gradient is the plain sum of what the processes computed, and all of them make
the same update. Knows nothing of losses, and nothing of how processes are started (`launch/ranks.py`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed

from slimrl.errors import UserError
from slimrl.trainer.packing import Pack, pack_samples
from slimrl.types import Sample


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process is number `rank` of the `num` in PyTorch's default process group. Alone, it exchanges nothing."""

    rank: int = 0
    num: int = 1

    @property
    def leads(self) -> bool:
        """Whether it is this process that logs and saves."""
        return self.rank == 0

    def packs(self, samples: Sequence[Sample], max_tokens: int, device: torch.device) -> list[Pack]:
        """This process's part of the batch; may be empty. Packs are smaller than `max_tokens` where there would
        otherwise be fewer of them than processes."""
        packs = pack_samples(samples, max_tokens, device)
        if len(packs) < self.num:
            num_tokens = sum(len(pack.token_ids_T) for pack in packs)
            packs = pack_samples(samples, math.ceil(num_tokens / self.num), device)
        mine = divide([len(pack.token_ids_T) for pack in packs], self.num)[self.rank]
        return [packs[index] for index in mine]

    def add(self, tensor: Tensor) -> None:
        """Make it the sum of all processes' tensors, to the same bits everywhere."""
        self._exchange(tensor, distributed.ReduceOp.SUM)

    def sums(self, values: Sequence[float]) -> list[float]:
        """Each number's sum over the processes."""
        totals = torch.tensor(values, dtype=torch.float64)
        self.add(totals)
        return [float(total) for total in totals]

    def maxima(self, values: Sequence[float]) -> list[float]:
        """Each number's maximum over the processes."""
        highest = torch.tensor(values, dtype=torch.float64)
        self._exchange(highest, distributed.ReduceOp.MAX)
        return [float(value) for value in highest]

    def _exchange(self, tensor: Tensor, operation: Any) -> None:
        """Raises UserError if another process has ended, such as the first for want of room on the disk."""
        if self.num == 1:
            return
        try:
            distributed.all_reduce(tensor, operation)
        except RuntimeError as error:
            raise UserError(f"another of the {self.num} processes ended, and may have said why ({error}).") from error


ALONE = Ranks()


def divide(sizes: Sequence[int], num: int) -> list[list[int]]:
    """The indices of `sizes` in `num` parts of about equal sums: the largest first, each to the part with least."""
    parts: list[list[int]] = [[] for _ in range(num)]
    loads = [0] * num
    for index in sorted(range(len(sizes)), key=lambda index: -sizes[index]):
        least = loads.index(min(loads))
        parts[least].append(index)
        loads[least] += sizes[index]
    return [sorted(part) for part in parts]
