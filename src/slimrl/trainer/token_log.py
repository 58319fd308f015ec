"""Writes the trainer's values for each trained token of a step to a file, which viewers show with the step's rollouts.

    rows        (S,) int32      the line of each sample in the rollouts' file, from 0
    lengths     (S,) int32      the number of the sample's trained tokens
    log_ratio   (N,) float16    log-probability under the weights before the step, minus the sampler's
    entropy     (N,) float16    entropy of the policy at the token, in nats
    advantage   (N,) float16    advantage as the policy loss read it

The N tokens are the trained tokens of all samples, one sample after the other. Values that were not finite are nan. The
file has numpy's format .npz.
"""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from slimrl.io.files import replace_file
from slimrl.io.run_dir import RunDir
from slimrl.trainer.parallel import Ranks
from slimrl.types import Sample

NAMES = ("log_ratio", "entropy", "advantage")


class TokenLog:
    """A table of the values of a step's tokens, `table` (3, N). It is filled pack by pack and written to a file."""

    def __init__(self, output_dir: Path, ranks: Ranks) -> None:
        self._output_dir = output_dir
        self._ranks = ranks
        self._parts: list[tuple[Tensor, Tensor]] = []
        self.table = torch.empty(0)

    def add(self, index_N: Tensor, *values_N: Tensor) -> None:
        """Store the values of a pack's tokens, in the order of `NAMES`. `index_N` are the tokens' indices in the
        batch."""
        self._parts.append((index_N, torch.stack([value.detach().float() for value in values_N])))

    def gather(self, num_tokens: int, device: torch.device) -> None:
        """Combine the values of all processes, and start to copy them from a GPU. `table` is complete after the next
        operation that waits for the GPU."""
        table_3N = torch.zeros(len(NAMES), num_tokens, device=device)
        for index_N, values_3N in self._parts:
            table_3N[:, index_N] = values_3N
        self._parts.clear()
        self._ranks.add(table_3N)
        self.table = table_3N.half().to("cpu", non_blocking=True)

    def write(self, step: int, samples: Sequence[Sample]) -> None:
        """Write the table to its file, unless a sample has no line in the rollouts' file. Raises UserError if the disk
        is full."""
        if not self._ranks.leads or any(sample.row < 0 for sample in samples):
            return
        arrays = dict(zip(NAMES, self.table.numpy(), strict=True))
        arrays["rows"] = np.array([sample.row for sample in samples], dtype=np.int32)
        arrays["lengths"] = np.array([sum(sample.loss_mask_T) for sample in samples], dtype=np.int32)
        content = io.BytesIO()
        np.savez(content, **arrays)
        replace_file(RunDir(self._output_dir).tokens_of(step), [content.getvalue()])
