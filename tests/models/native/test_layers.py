"""The operations between products equal those in float64, and their gradients autograd's."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from slimrl.models.native import ops
from tests.models.native.cases import HALF_STEP, NAN, random, threads

pytestmark = pytest.mark.usefixtures("kernels")
DTYPES = [torch.float32, torch.bfloat16]
EPS = 1e-5


def assert_near(ours: Tensor, exact: Tensor, dtype: torch.dtype, roundings: int = 1) -> None:
    """Assert that the results differ by no more than this number of roundings to the dtype."""
    assert ours.shape == exact.shape
    rtol = HALF_STEP * roundings if dtype == torch.bfloat16 else 2e-6
    torch.testing.assert_close(ours.double(), exact.double(), rtol=rtol, atol=2e-6 * float(exact.abs().max()))


def exact_norm(x: Tensor, weight: Tensor) -> Tensor:
    return weight * x / (x.square().mean(-1, keepdim=True) + EPS).sqrt()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (5, 64), (40, 576), (300, 100), (4, 3, 64), (7, 1, 33)])
def test_norm_is_the_exact_one_rounded(shape, dtype):
    x, weight = 3 * random(*shape, dtype=dtype), random(shape[-1], seed=1, dtype=dtype)
    expected = exact_norm(x.double(), weight.double())
    assert_near(ops.norm(x, weight, EPS), expected, dtype, roundings=2)  # the quotient is rounded before the product
    normed, scales = ops.norm_forward(x, weight, EPS)
    assert torch.equal(normed, ops.norm(x, weight, EPS))
    assert scales.shape == shape[:-1]
    torch.testing.assert_close(scales.double(), (x.double().square().mean(-1) + EPS).rsqrt(), rtol=1e-6, atol=0)
    with threads(2):
        assert torch.equal(normed, ops.norm(x, weight, EPS))


def test_norm_rounds_where_transformers_does():
    x, weight = 3 * random(40, 576), random(576, seed=1)
    quotient = (x.float() * (x.float().square().mean(-1, keepdim=True) + EPS).rsqrt()).bfloat16()
    assert (ops.norm(x, weight, EPS) == quotient * weight).float().mean() > 0.999


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["norm", "rotate"])
def test_parts_of_larger_tensors_are_taken_and_filled_also_in_place(name: str, dtype: torch.dtype) -> None:
    row, settings = random(6, 9, 64, dtype=dtype), (random(64, seed=1, dtype=dtype), EPS)
    operation = {"norm": ops.norm, "rotate": ops.rotate}[name]
    if name == "rotate":
        settings = angles(6, 64, dtype)
    before, part = row.clone(), row[:, 2:5]
    expected = operation(part.contiguous(), *settings)
    assert torch.equal(operation(part, *settings), expected)
    elsewhere = torch.zeros_like(row)
    operation(part, *settings, out=elsewhere[:, 5:8])
    assert torch.equal(elsewhere[:, 5:8], expected) and not bool(elsewhere[:, :5].any() or elsewhere[:, 8:].any())
    assert torch.equal(row, before)
    assert operation(part, *settings, out=part) is part
    assert torch.equal(row[:, 2:5], expected)
    assert torch.equal(row[:, :2], before[:, :2]) and torch.equal(row[:, 5:], before[:, 5:])
    flat = random(10, 128, dtype=dtype)[:, :64]
    if name == "norm":
        assert torch.equal(ops.norm(flat, *settings), ops.norm(flat.contiguous(), *settings))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 7), (3, 64), (50, 576), (4, 3, 64)])
def test_norms_gradients_are_those_of_float64(shape, dtype):
    x, weight, grad, plus = (
        random(*size, seed=seed, dtype=dtype) for seed, size in enumerate([shape, shape[-1:], shape, shape])
    )
    _, scales = ops.norm_forward(x, weight, EPS)
    exact_x, exact_weight = x.double().requires_grad_(), weight.double().requires_grad_()
    exact_norm(exact_x, exact_weight).backward(grad.double())
    for number in (1, 2, 3):
        with threads(number):
            grad_x, grad_weight = ops.norm_backward(grad, x, weight, scales)
            more_x, same_weight = ops.norm_backward(grad, x, weight, scales, plus=plus)
        assert_near(grad_x, exact_x.grad, dtype)
        assert_near(more_x, exact_x.grad + plus.double(), dtype)
        assert_near(grad_weight, exact_weight.grad, dtype)
        assert torch.equal(same_weight, grad_weight)


def angles(T: int, D: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    angle = 3 * random(T, D // 2, seed=9, dtype=torch.float32)
    return angle.cos().to(dtype), angle.sin().to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1, 2), (5, 3, 8), (3, 2, 34), (60, 9, 64)])
def test_rotation_is_the_exact_one_rounded_and_can_be_turned_back(shape, dtype):
    T, _, D = shape
    x, (cos, sin) = random(*shape, dtype=dtype), angles(T, D, dtype)
    (a, b), c, s = x.double().chunk(2, -1), cos.double()[:, None], sin.double()[:, None]
    forth = torch.cat((a * c - b * s, b * c + a * s), -1)
    back = torch.cat((a * c + b * s, b * c - a * s), -1)
    for number in (1, 2):
        with threads(number):
            assert_near(ops.rotate(x, cos, sin), forth, dtype)
            assert_near(ops.rotate(x, cos, sin, back=True), back, dtype)
    again = ops.rotate(ops.rotate(x, cos, sin), cos, sin, back=True)
    atol = 1e-5 if dtype == torch.float32 else 0.05
    torch.testing.assert_close(again, x, rtol=0, atol=atol)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 37), (40, 1536)])
def test_a_gates_values_and_gradients_are_those_of_float64(shape, dtype):
    gate, up, grad = (4 * random(*shape, seed=seed, dtype=dtype) for seed in range(3))
    exact_gate, exact_up = gate.double().requires_grad_(), up.double().requires_grad_()
    exact = F.silu(exact_gate) * exact_up
    exact.backward(grad.double())
    for number in (1, 2):
        with threads(number):
            mixed = ops.gate_mix(gate, up)
            given = grad.clone()
            grad_gate, grad_up, again = ops.gate_backward(given, gate, up)
        assert_near(mixed, exact.detach(), dtype)
        assert torch.equal(again, mixed)
        assert grad_gate is given
        assert_near(grad_gate, exact_gate.grad, dtype)
        assert_near(grad_up, exact_up.grad, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_not_a_number_is_never_made_one(dtype):
    x, weight = random(4, 64, dtype=dtype), random(64, seed=1, dtype=dtype)
    x[2, 9] = NAN
    normed, scales = ops.norm_forward(x, weight, EPS)
    assert normed.isnan().any(-1).tolist() == [False, False, True, False]
    assert bool(normed[2].isnan().all())
    grad_x, grad_weight = ops.norm_backward(random(4, 64, seed=2, dtype=dtype), x, weight, scales)
    assert grad_x.isnan().all(-1).tolist() == grad_x.isnan().any(-1).tolist() == [False, False, True, False]
    assert bool(grad_weight.isnan().all())
    rotated = ops.rotate(x[:, None], *angles(4, 64, dtype))[:, 0]
    assert rotated.isnan().nonzero().tolist() == [[2, 9], [2, 41]]
    one, ones = torch.zeros_like(x), random(4, 64, seed=3, dtype=dtype)
    one[2, 9] = NAN
    for gate, up in ((one, ones), (ones, one)):
        assert ops.gate_mix(gate, up).isnan().nonzero().tolist() == [[2, 9]]
    for inputs in ((one, ones, ones), (ones, one, ones), (ones, ones, one)):
        grads = ops.gate_backward(inputs[0].clone(), *inputs[1:])
        found = sum(result.isnan().int() for result in grads)
        assert torch.as_tensor(found).nonzero().tolist() == [[2, 9]]
        assert bool(grads[0][2, 9].isnan())
