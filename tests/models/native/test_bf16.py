"""Rounding is right, as seen through the kernels that use it most directly."""

import pytest
import torch
from torch import Tensor

from slimrl.models.native import ops
from tests.models.native.cases import INF

pytestmark = pytest.mark.usefixtures("kernels")


def every_bfloat16() -> Tensor:
    return torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)


def rounded_sums(a: Tensor, b: Tensor) -> Tensor:
    """The rotation of a head of two numbers: a - b and a + b, exact in float32, rounded to bfloat16."""
    heads, one = torch.stack((a, torch.ones_like(a)), -1)[:, None], torch.ones_like(a)[:, None]
    return ops.rotate(heads, one, b[:, None])[:, 0, 0]


def test_every_bfloat16_number_stays_what_it_is():
    x = every_bfloat16()
    found = rounded_sums(x, torch.zeros_like(x))
    assert torch.equal(found.isnan(), x.isnan())
    finite = ~x.isnan()
    assert torch.equal(found[finite], x[finite])


@pytest.mark.parametrize("share", [-0.75, -0.5, -0.25, 0.25, 0.5, 0.75])
def test_rounding_is_to_the_nearest_and_of_ties_to_even(share):
    x = every_bfloat16()
    x = x[(x.abs() >= 2.0**-100) & (x.abs() <= 2.0**100)]
    step = torch.ldexp(torch.ones(len(x)), x.float().frexp().exponent - 8)
    parts = (share * step).bfloat16()
    expected = (x.float() - parts.float()).bfloat16()
    assert torch.equal(rounded_sums(x, parts), expected)
    if abs(share) == 0.5:  # ties, but for powers of two, below which the steps are smaller
        assert (expected == x).float().mean() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("bits", [0x7FC00000, 0x7FFFFFFF, 0x7F800001, -1])
def test_what_is_not_a_number_is_not_rounded_to_one(bits):
    """The bits of some, with 0x8000 added, are those of 0."""
    logits, nan = torch.zeros(1, 40, dtype=torch.bfloat16), torch.tensor([bits], dtype=torch.int32).view(torch.float32)
    ops.logprobs_backward(logits, torch.zeros(1, dtype=torch.int64), torch.ones(1), 1.0, nan)
    assert bool(logits.isnan().all())


def test_beyond_the_largest_number_is_infinity_and_not_a_nan():
    largest = torch.finfo(torch.bfloat16).max
    x = torch.tensor([largest, -largest], dtype=torch.bfloat16)
    assert rounded_sums(x, torch.tensor([-largest, largest], dtype=torch.bfloat16)).tolist() == [INF, -INF]
    gates = torch.full((1, 40), 20.0, dtype=torch.bfloat16)
    assert bool((ops.gate_mix(gates, torch.full_like(gates, largest)) == INF).all())
