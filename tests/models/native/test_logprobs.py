"""Log-probabilities and their gradient equal those of autograd in float64."""

import pytest
import torch
from torch import Tensor

from slimrl.models.native import ops
from tests.models.native.cases import HALF_STEP, INF, NAN, random, threads

pytestmark = pytest.mark.usefixtures("kernels")
DTYPES = [torch.float32, torch.bfloat16]


def exact(logits_NV: Tensor, target_N: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """The log-sum-exp, log-probabilities and entropy in float64."""
    scaled_NV = logits_NV.double() / temperature
    logprobs_NV = scaled_NV.log_softmax(-1)
    entropy_N = -torch.where(logprobs_NV > -INF, logprobs_NV.exp() * logprobs_NV, 0.0).sum(-1)
    return scaled_NV.logsumexp(-1), logprobs_NV.gather(-1, target_N[:, None])[:, 0], entropy_N


def gradient(logits_NV: Tensor, target_N: Tensor, weight_N: Tensor, temperature: float) -> Tensor:
    """The gradient of logits. `weight_N` is the loss's gradient by the log-probability, over the temperature."""
    logsumexp_N, _, _ = ops.logprobs(logits_NV, target_N, temperature)
    result = logits_NV.clone()
    ops.logprobs_backward(result, target_N, weight_N, temperature, logsumexp_N)
    return result


def exact_gradient(logits_NV: Tensor, target_N: Tensor, weight_N: Tensor, temperature: float) -> Tensor:
    leaf = logits_NV.double().requires_grad_()
    logprob_N = (leaf / temperature).log_softmax(-1).gather(-1, target_N[:, None])[:, 0]
    (logprob_N * weight_N.double() * temperature).sum().backward()
    assert leaf.grad is not None
    return leaf.grad


def assert_gradient_near(ours: Tensor, expected: Tensor) -> None:
    assert ours.dtype in DTYPES
    rtol = 5e-6 if ours.dtype == torch.float32 else HALF_STEP + 5e-6
    torch.testing.assert_close(ours.double(), expected, rtol=rtol, atol=2e-7)


def targets(N: int, V: int) -> Tensor:
    return torch.randint(V, (N,), generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("temperature", [1.0, 0.7, 2.5])
@pytest.mark.parametrize(("N", "V"), [(1, 1), (3, 2), (5, 31), (7, 1000), (4, 49152)])
def test_values_and_gradients_are_those_of_float64(N, V, temperature, dtype):
    logits_NV, target_N, weight_N = 3 * random(N, V, dtype=dtype), targets(N, V), random(N, seed=1, dtype=torch.float32)
    expected = exact(logits_NV, target_N, temperature)
    expected_gradient = exact_gradient(logits_NV, target_N, weight_N, temperature)
    for number in (1, 2):
        with threads(number):
            found = ops.logprobs(logits_NV, target_N, temperature)
            for ours, theirs in zip(found, expected, strict=True):
                torch.testing.assert_close(ours.double(), theirs, rtol=3e-6, atol=3e-6)
            assert_gradient_near(gradient(logits_NV, target_N, weight_N, temperature), expected_gradient)


@pytest.mark.parametrize("dtype", DTYPES)
def test_forbidden_tokens_have_no_mass_and_no_gradient(dtype):
    logits_NV, target_N, weight_N = random(6, 300, dtype=dtype), targets(6, 300), torch.ones(6)
    forbidden_NV = random(6, 300, seed=2) > 0.5
    forbidden_NV[torch.arange(6), target_N] = False
    logits_NV[forbidden_NV] = -INF
    for ours, theirs in zip(ops.logprobs(logits_NV, target_N, 0.5), exact(logits_NV, target_N, 0.5), strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=3e-6, atol=3e-6)
    found = gradient(logits_NV, target_N, weight_N, 0.5)
    assert_gradient_near(found, exact_gradient(logits_NV, target_N, weight_N, 0.5))
    assert not bool(found[forbidden_NV].any())
    logits_NV[0, target_N[0]] = -INF
    _, logprob_N, entropy_N = ops.logprobs(logits_NV, target_N, 0.5)
    assert logprob_N[0] == -INF and bool(logprob_N[1:].isfinite().all() and entropy_N.isfinite().all())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1e3, 3e4, 1e30])
def test_huge_logits_are_as_exact_as_differences_of_them_can_be(size, dtype):
    logits_NV, target_N = random(4, 100, dtype=dtype), targets(4, 100)
    logits_NV[0] += size
    logits_NV[1] -= size
    logits_NV[2, 5] = size
    logits_NV[3, 5] = -size
    _, expected_N, expected_entropy_N = exact(logits_NV, target_N, 1.0)
    logsumexp_N, logprob_N, entropy_N = ops.logprobs(logits_NV, target_N, 1.0)
    assert bool(logsumexp_N.isfinite().all())
    torch.testing.assert_close(logprob_N.double(), expected_N, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(entropy_N.double(), expected_entropy_N, rtol=1e-5, atol=1e-5)
    if size < 1e4:  # the backward pass starts from the log-sum-exp, which float32 must be able to hold
        found = gradient(logits_NV, target_N, torch.ones(4), 1.0)
        torch.testing.assert_close(
            found.double(), exact_gradient(logits_NV, target_N, torch.ones(4), 1.0), rtol=5e-3, atol=1e-4
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [NAN, INF])
@pytest.mark.parametrize("place", [0, 17, 99])
def test_what_is_not_a_number_is_never_made_one(place, bad, dtype):
    logits_NV, target_N = random(4, 100, dtype=dtype), targets(4, 100)
    logits_NV[2, place] = bad
    for result_N in ops.logprobs(logits_NV, target_N, 1.0):
        assert result_N.isfinite().tolist() == [True, True, False, True]
    found = gradient(logits_NV, target_N, torch.ones(4), 1.0)
    assert found.isfinite().all(-1).tolist() == [True, True, False, True]
    assert not bool(found[2].isfinite().any())
