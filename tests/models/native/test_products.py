"""Tiled products are right, and a row's bits do not depend on the rows computed with it."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from slimrl.models.native import ops
from tests.models.native.cases import HALF_STEP, INF, NAN, random, threads

pytestmark = pytest.mark.usefixtures("tiles")
ROWS = (1, 2, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 255, 256, 257, 300)
SHAPES = ((32, 16), (32, 32), (96, 80), (288, 112))  # inputs, outputs


def exact_product(x: Tensor, weight: Tensor) -> Tensor:
    return x.double() @ weight.double().t()


def assert_rounded(ours: Tensor, exact: Tensor) -> None:
    """Assert that the results differ by half a step of bfloat16 and by float32's summation error at most."""
    torch.testing.assert_close(ours.double(), exact, rtol=HALF_STEP, atol=2e-5)


@pytest.mark.parametrize("T", ROWS)
def test_a_product_is_the_exact_one_rounded(T):
    for K, N in SHAPES:
        x, weight, plus, bias = random(T, K), random(N, K, seed=1), random(T, N, seed=2), random(N, seed=3)
        packed, exact = ops.Packed([weight]), exact_product(x, weight)
        assert_rounded(packed(x), exact)
        assert_rounded(packed(x, plus=plus), exact + plus.double())
        assert_rounded(ops.Packed([weight], biases=[bias])(x), exact + bias.double())


@pytest.mark.parametrize("widths", [(16, 16, 16), (48, 16, 32), (144, 16, 16), (16, 64)])
def test_several_layers_with_one_input_are_one_product(widths):
    weights = [random(N, 64, seed=N + place) for place, N in enumerate(widths)]
    x, bias = random(37, 64), random(sum(widths), seed=2)
    together = ops.Packed(weights, biases=[bias])(x)
    assert_rounded(together, exact_product(x, torch.cat(weights)) + bias.double())


@pytest.mark.parametrize("T", ROWS)
def test_a_gate_and_what_it_gates_are_one_product(T):
    for K, N in SHAPES:
        x, gate, up = random(T, K), random(N, K, seed=1), random(N, K, seed=2)
        mixed = ops.Packed([gate, up], halves=True)(x)
        assert mixed.shape == (T, N)
        gated, upped = exact_product(x, gate), exact_product(x, up)
        # Both products are rounded before they are mixed; silu can magnify an error of its argument by |x|.
        magnified = 1 + gated.abs() * (1 - gated.sigmoid())
        bound = HALF_STEP * (2 + magnified) * (F.silu(gated) * upped).abs() + 1e-4
        assert bool(((mixed.double() - F.silu(gated) * upped).abs() <= bound).all())
        rounded = F.silu(gated.bfloat16().double()) * upped.bfloat16().double()
        assert ((mixed.double() - rounded).abs() <= HALF_STEP * rounded.abs()).double().mean() > 0.99


@pytest.mark.parametrize("halves", [False, True])
def test_no_row_depends_on_the_others_nor_on_the_number_of_threads(halves):
    x, weights = random(600, 96), [random(112, 96, seed=1), random(112, 96, seed=2)]
    packed = ops.Packed(weights, halves)
    whole = packed(x)
    with threads(16):  # more than panels
        assert torch.equal(packed(x), whole)
    for start, T in zip((0, 1, 7, 16, 31, 32, 100, 255, 256, 257, 290, 299, 3, 5, 11, 13), ROWS, strict=True):
        for number in (1, 2, 3):
            with threads(number):
                assert torch.equal(packed(x[start : start + T]), whole[start : start + T])
    single = torch.cat([packed(x[t : t + 1]) for t in range(len(x))])
    assert torch.equal(single, whole)


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_what_is_not_finite_stays_in_its_row_or_output(bad, halves):
    packed = ops.Packed([random(48, 64, seed=1), random(48, 64, seed=2)], halves)
    for T in (5, 16, 40, 300):
        x = random(T, 64)
        expected = packed(x)
        for row in {0, T // 2, T - 1}:
            broken = x.clone()
            broken[row, 7] = bad
            found = packed(broken)
            others = torch.arange(T) != row
            assert torch.equal(found[others], expected[others])
            assert not bool(found[row].isfinite().any())
    weight, x = random(48, 64, seed=1), random(40, 64)
    expected = ops.Packed([weight])(x)
    weight[20, 3] = NAN
    found, others = ops.Packed([weight])(x), torch.arange(48) != 20
    assert torch.equal(found[:, others], expected[:, others]) and bool(found[:, 20].isnan().all())


def test_weights_of_other_shapes_and_dtypes_are_not_packable():
    assert ops.packable(random(16, 32))
    assert not ops.packable(random(16, 48))
    assert not ops.packable(random(24, 32))
    assert not ops.packable(random(32, 32).t()[:16])
    assert not ops.packable(random(16, 32, dtype=torch.float32))
