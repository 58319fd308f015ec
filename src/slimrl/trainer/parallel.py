"""Data parallelism: several processes train one policy. They divide the packs of a batch and sum their results.

Every process receives the whole batch and packs it in the same way. Token weights are computed from the whole batch
(`losses.token_weights`), so the batch's gradient is the sum of the processes' gradients. `trainer/fsdp.py` shards the
parameters, and `launch/ranks.py` starts the processes.
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
    """The `num` processes that train together (PyTorch's default process group), and the `rank` of this process. With a
    single process, no method communicates."""

    rank: int = 0
    num: int = 1

    @property
    def leads(self) -> bool:
        """True in the leading process, rank 0, which logs and saves."""
        return self.rank == 0

    def packs(self, samples: Sequence[Sample], max_tokens: int, device: torch.device) -> list[Pack]:
        """Return the packs that this process computes. Every process gets the same number of packs; some may be empty.
        If there would be fewer packs than processes, smaller packs are made."""
        # All processes compute the same packs and the same division, so no communication is needed.
        packs = pack_samples(samples, max_tokens, device)
        if len(packs) < self.num:
            num_tokens = sum(len(pack.token_ids_T) for pack in packs)
            packs = pack_samples(samples, math.ceil(num_tokens / self.num), device)
        shares = divide([len(pack.token_ids_T) for pack in packs], self.num)
        mine = [packs[index] for index in shares[self.rank]]
        # All processes must take part in each forward of a sharded module, so all get the same number of packs.
        return mine + [empty_pack(device)] * (max(map(len, shares)) - len(mine))

    def add(self, tensor: Tensor) -> None:
        """Replace the tensor by its sum over the processes. The result has the same bits in all processes."""
        self._exchange(tensor, distributed.ReduceOp.SUM)

    def sums(self, values: Sequence[float]) -> list[float]:
        """Return the sum of each number over the processes."""
        # Use float64: counts stay exact, and a sum hardly depends on the number of processes.
        totals = torch.tensor(values, dtype=torch.float64)
        self.add(totals)
        return [float(total) for total in totals]

    def maxima(self, values: Sequence[float]) -> list[float]:
        """Return the maximum of each number over the processes."""
        highest = torch.tensor(values, dtype=torch.float64)
        self._exchange(highest, distributed.ReduceOp.MAX)
        return [float(value) for value in highest]

    def of_first(self, value: T) -> T:
        """Return the leading process's value in all processes."""
        values = [value]
        if self.num > 1:
            distributed.broadcast_object_list(values, 0)
        return values[0]

    def all_of(self, value: T) -> list[T]:
        """Return the values of all processes, in the order of their ranks."""
        values = [value] * self.num
        if self.num > 1:
            distributed.all_gather_object(values, value)
        return values

    @contextmanager
    def united(self) -> Iterator[None]:
        """Context manager: if the body raises UserError in one process, raise UserError in all processes. In the body,
        no statement that waits for other processes may follow a statement that can fail in a single process: the others
        would wait forever."""
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
    """Divide the indices of `sizes` into `num` parts with about equal sums. The algorithm is greedy: it adds each
    index, largest size first, to the part with the smallest sum."""
    parts: list[list[int]] = [[] for _ in range(num)]
    loads = [0] * num
    for index in sorted(range(len(sizes)), key=lambda index: -sizes[index]):
        least = loads.index(min(loads))
        parts[least].append(index)
        loads[least] += sizes[index]
    return [sorted(part) for part in parts]
