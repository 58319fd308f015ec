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


def step_of(weight: Tensor) -> Tensor:
    """The quantization step of each output: its largest weight over 127."""
    return weight.double().abs().amax(1, keepdim=True) / 127


def rounded_weight(weight: Tensor) -> Tensor:
    return (weight.double() / step_of(weight)).round() * step_of(weight)


def assert_rounded(ours: Tensor, exact: Tensor) -> None:
    """Assert that the results differ by half a step of bfloat16 and by float32's summation error at most."""
    torch.testing.assert_close(ours.double(), exact, rtol=HALF_STEP, atol=2e-5)


def assert_near(ours: Tensor, exact: Tensor, x: Tensor, weight: Tensor) -> None:
    """Within half a step of bfloat16, what rounding rows to 16 bits is off by at most, and a step for every weight that
    is half-way between two levels, and may have gone to the other."""
    of_rows = x.double().abs().amax(1, keepdim=True) / 32767 / 2 * weight.double().abs().sum(1) * 1.1
    half_way = ((weight.double() / step_of(weight)).abs().frac() - 0.5).abs() < 1e-4
    of_weights = x.double().abs() @ (half_way * step_of(weight)).t()
    assert bool(((ours.double() - exact).abs() <= HALF_STEP * exact.abs() + of_rows + of_weights + 1e-4).all())


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("T", ROWS)
def test_a_product_is_the_exact_one_rounded(T, quantized):
    for K, N in SHAPES:
        x, weight, plus, bias = random(T, K), random(N, K, seed=1), random(T, N, seed=2), random(N, seed=3)
        packed, exact = (
            ops.Packed([weight], quantized=quantized),
            exact_product(x, rounded_weight(weight) if quantized else weight),
        )
        with_bias = ops.Packed([weight], biases=[bias], quantized=quantized)(x)
        results = (
            (packed(x), exact),
            (packed(x, plus=plus), exact + plus.double()),
            (with_bias, exact + bias.double()),
        )
        for ours, expected in results:
            if quantized:
                assert_near(ours, expected, x, weight)
            else:
                assert_rounded(ours, expected)


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


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("halves", [False, True])
def test_changed_weights_count_after_refresh_and_offload(halves, quantized):
    x, weights = random(20, 64), [random(48, 64, seed=1), random(48, 64, seed=2)]
    packed = ops.Packed(weights, halves, quantized=quantized)
    before = packed(x)
    packed.offload()
    packed.offload()
    assert torch.equal(packed(x), before)
    weights[1].mul_(2)
    assert torch.equal(packed(x), before)  # it is a copy
    packed.refresh()
    after = packed(x)
    assert torch.equal(after, 2 * before if halves else torch.cat((before[:, :48], 2 * before[:, 48:]), 1))
    packed.offload()
    assert torch.equal(packed(x), after)


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("halves", [False, True])
def test_no_row_depends_on_the_others_nor_on_the_number_of_threads(halves, quantized):
    x, weights = random(600, 96), [random(112, 96, seed=1), random(112, 96, seed=2)]
    packed = ops.Packed(weights, halves, quantized=quantized)
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


def test_quantized_halves_are_mixed_as_others_are():
    x, gate, up = random(37, 96), random(48, 96, seed=1), random(48, 96, seed=2)
    mixed = ops.Packed([gate, up], halves=True, quantized=True)(x)
    gated, upped = (ops.Packed([weight], quantized=True)(x).float() for weight in (gate, up))
    torch.testing.assert_close(mixed.float(), F.silu(gated) * upped, rtol=2 * HALF_STEP, atol=1e-4)


def test_quantizing_hides_neither_zeros_nor_what_is_not_finite():
    x, weight = random(20, 64), random(48, 64, seed=1)
    x[3], weight[5] = 0, 0
    x[7, 9], x[8, 0], weight[6, 3], weight[7, 0] = NAN, INF, NAN, INF
    product = ops.Packed([weight], quantized=True)(x)
    lost_rows, lost_columns = [7, 8], [6, 7]
    assert not product[lost_rows][:, 8:].isfinite().any() and not product[9:, lost_columns].isfinite().any()
    kept = product[[row for row in range(20) if row not in lost_rows]]
    kept = kept[:, [column for column in range(48) if column not in lost_columns]]
    assert kept.isfinite().all() and not kept[3].any() and not kept[:, 5].any()
