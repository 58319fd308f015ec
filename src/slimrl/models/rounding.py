"""Rounds float32 numbers to bfloat16, each at a fixed random threshold instead of at one half (dithering). The average
change is right, while rounding to nearest would lose small changes of nearly all weights for many steps."""

import torch
from torch import Tensor


def draw_thresholds(num: int, device: torch.device) -> Tensor:
    """Return random integers from 0 to 65535 (int32), the same in every run, so that runs repeat exactly."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(1 << 16, (num,), generator=generator, dtype=torch.int32).to(device)


def dither(exact_N: Tensor, threshold_N: Tensor) -> Tensor:
    """Return int16 pairs (N, 2): the lower halves of number + threshold, and the bits of the rounded numbers.

    bfloat16 is the upper half of float32. The lower half is a number in [0, 65536). Adding a threshold from the same
    range carries into the upper half with the right probability. A carry turns the upper half into the next bfloat16
    number away from zero. If the lower half is 0, nothing carries: bfloat16 represents this number exactly.
    """
    return (exact_N.view(torch.int32) + threshold_N[: len(exact_N)]).view(torch.int16).view(-1, 2)  # little-endian
