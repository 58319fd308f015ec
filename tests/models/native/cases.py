"""Random tensors, numbers of threads, and tiny policies with heads as wide as tiles want them."""

import contextlib
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from slimrl.models.forward.attention import ATTENTION
from slimrl.models.native import ops
from tests.tiny import tiny_module

HALF_STEP = 2.0**-8  # the largest relative error of rounding to bfloat16
NAN, INF = float("nan"), float("inf")


def skip_without_kernels() -> None:
    if not ops.available(torch.empty(0)):
        pytest.skip("there is no C++ compiler that makes kernels")


def skip_without_tiles() -> None:
    skip_without_kernels()
    if not ops.has_tiles(torch.empty(0, dtype=torch.bfloat16)):
        pytest.skip("this CPU has neither AMX nor AVX512-BF16")


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@contextlib.contextmanager
def threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def wide_policy(family: str) -> nn.Module:
    """A tiny model with heads of 64, as slimrl runs it, whose weights are bfloat16."""
    module = tiny_module(family, vocab_size=320, head_dim=64)
    module.set_attn_implementation(ATTENTION)
    return module.eval().to(torch.bfloat16)
