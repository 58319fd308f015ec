"""Data parallelism: processes that share one policy divide the packs of a batch and sum their results.

Every process is given the whole batch and packs it in the same way. Token weights are computed from the whole batch
(`losses.token_weights`), so its gradient is the plain sum of the processes' gradients. How parameters are shared is
in `trainer/fsdp.py`. This module knows nothing of losses, nor of how processes are started (`launch/ranks.py`).
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

from slimrl.errors import UserError
from slimrl.trainer.packing import Pack, empty_pack, pack_samples
from slimrl.types import Sample

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ranks:
    """The place of this process, `rank`, among the `num` processes of PyTorch's default process group. A process that
    is alone exchanges nothing."""

    rank: int = 0
    num: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process is the one that logs and saves."""
        return self.rank == 0

    def packs(self, samples: Sequence[Sample], max_tokens: int, device: torch.device) -> list[Pack]:
        """The packs that this process computes, as many as every other one; some may be empty. Packs are made
        smaller than `max_tokens` where there would otherwise be fewer packs than processes."""
        # All processes compute the same packs and the same division, so they need not talk about it.
        packs = pack_samples(samples, max_tokens, device)
        if len(packs) < self.num:
            num_tokens = sum(len(pack.token_ids_T) for pack in packs)
            packs = pack_samples(samples, math.ceil(num_tokens / self.num), device)
        shares = divide([len(pack.token_ids_T) for pack in packs], self.num)
        mine = [packs[index] for index in shares[self.rank]]
        # A sharded module needs all processes for each of its forwards, so all get equally many packs.
        return mine + [empty_pack(device)] * (max(map(len, shares)) - len(mine))

    def add(self, tensor: Tensor) -> None:
        """Replace the tensor by the sum of all processes' tensors, with the same bits in all of them."""
        self._exchange(tensor, distributed.ReduceOp.SUM)

    def sums(self, values: Sequence[float]) -> list[float]:
        """The sum of each number over the processes."""
        # In float64, so that counts stay exact and a sum hardly depends on the number of processes.
        totals = torch.tensor(values, dtype=torch.float64)
        self.add(totals)
        return [float(total) for total in totals]

    def maxima(self, values: Sequence[float]) -> list[float]:
        """The maximum of each number over the processes."""
        highest = torch.tensor(values, dtype=torch.float64)
        self._exchange(highest, distributed.ReduceOp.MAX)
        return [float(value) for value in highest]

    def of_first(self, value: T) -> T:
        """The value that the leading process has, in all of them."""
        values = [value]
        if self.num > 1:
            distributed.broadcast_object_list(values, 0)
        return values[0]

    def all_of(self, value: T) -> list[T]:
        """The values that the processes have, in the order of their ranks."""
        values = [value] * self.num
        if self.num > 1:
            distributed.all_gather_object(values, value)
        return values

    @contextmanager
    def united(self) -> Iterator[None]:
        """If the body raises UserError in one process, all raise. Nothing that waits for the others may stand in it
        behind what can raise in one alone."""
        failure: UserError | None = None
        try:
            yield
        except UserError as error:
            failure = error
        texts = self.all_of(str(failure or ""))
        if failure:
            raise failure
        for rank, text in enumerate(texts):
            if text:
                raise UserError(f"rank {rank} of {self.num} failed: {text}")

    def _exchange(self, tensor: Tensor, operation: Any) -> None:
        if self.num > 1:
            distributed.all_reduce(tensor, operation)


ALONE = Ranks()


def divide(sizes: Sequence[int], num: int) -> list[list[int]]:
    """A division of the indices of `sizes` into `num` parts of about equal sums. It is greedy: each index, in order of
    falling size, goes to the part with the smallest sum."""
    parts: list[list[int]] = [[] for _ in range(num)]
    loads = [0] * num
    for index in sorted(range(len(sizes)), key=lambda index: -sizes[index]):
        least = loads.index(min(loads))
        parts[least].append(index)
        loads[least] += sizes[index]
    return [sorted(part) for part in parts]
