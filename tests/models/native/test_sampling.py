"""Sampling by the kernel and by PyTorch draws the same tokens."""

import math

import pytest
import torch
from torch import Tensor

from slimrl.inference.sampling import sample_tokens
from slimrl.models.native import ops
from slimrl.types import SamplingParams
from tests.models.native.cases import INF, NAN, random, threads

pytestmark = pytest.mark.usefixtures("kernels")
DTYPES = [torch.float32, torch.bfloat16]
LAST = 1 - 2**-53  # the largest number in [0, 1)


def sample(logits_NV: Tensor, temperature: float, uniforms: list[float]) -> tuple[list[int], list[float]]:
    N = len(uniforms)
    uniform_N = torch.tensor(uniforms, dtype=torch.float64)
    token_N, logprob_N = ops.sample(logits_NV, torch.full((N,), temperature), uniform_N)
    return token_N.tolist(), logprob_N.tolist()


def uniforms(N: int) -> list[float]:
    return torch.rand(N, generator=torch.Generator().manual_seed(1), dtype=torch.float64).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("temperature", [1.0, 0.6, 0.0])
@pytest.mark.parametrize(("V", "N"), [(1, 5), (2, 200), (511, 500), (512, 500), (513, 500), (49152, 40)])
def test_it_draws_what_pytorch_draws(V, N, temperature, dtype, monkeypatch):
    logits_NV, uniform_N = 3 * random(N, V, dtype=dtype), uniforms(N)
    params = [SamplingParams(1, temperature)] * N
    ours = sample_tokens(logits_NV, params, uniform_N)
    assert ours == sample(logits_NV, temperature, uniform_N)
    with threads(2):
        assert ours == sample(logits_NV, temperature, uniform_N)
    monkeypatch.setattr(ops, "available", lambda tensor: False)
    theirs = sample_tokens(logits_NV, params, uniform_N)
    same = [a == b for a, b in zip(ours[0], theirs[0], strict=True)]
    assert sum(same) >= N - 1 - N // 200  # a uniform next to the border between two tokens may fall on either side
    logprob_NV = (logits_NV.double() / (temperature or 1.0)).log_softmax(-1)
    assert ours[1] == pytest.approx(
        [float(row[token]) for row, token in zip(logprob_NV, ours[0], strict=True)], abs=1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_tokens_follow_the_tempered_softmax(temperature, dtype):
    logits, n = 3 * random(1, 1300, dtype=dtype), 20_000
    grid = [(i + 0.5) / n for i in range(n)]
    tokens, _ = sample(logits.expand(n, -1).contiguous(), temperature, grid)
    assert tokens == sorted(tokens)
    drawn = torch.bincount(torch.tensor(tokens), minlength=1300) / n
    assert (drawn - (logits[0].double() / temperature).softmax(-1)).abs().max() < 2 / n


@pytest.mark.parametrize("dtype", DTYPES)
def test_greedy_takes_the_first_of_the_largest_whatever_the_number(dtype):
    logits_NV = random(6, 1200, dtype=dtype).clamp(max=1.0)
    ties = [(0,), (1199,), (511, 512), (512, 513), (3, 4, 700), (0, 1199)]
    for row, places in enumerate(ties):
        logits_NV[row, list(places)] = 5.0
    for uniform in (0.0, 0.5, LAST):
        tokens, logprobs = sample(logits_NV, 0.0, [uniform] * 6)
        assert tokens == [places[0] for places in ties]
        assert logprobs == pytest.approx(logits_NV.double().log_softmax(-1).amax(-1).tolist(), abs=1e-5)


@pytest.mark.parametrize("V", [1, 511, 512, 513, 2000])
@pytest.mark.parametrize("uniform", [0.0, 2.0**-60, 0.5, LAST])
def test_no_uniform_draws_a_token_without_mass(uniform, V):
    for seed in range(20):
        logits_NV = 3 * random(1, V, seed=seed, dtype=torch.float32)
        logits_NV[random(1, V, seed=100 + seed) > -1.0] = -INF  # most of them
        logits_NV[:, V // 4 : V // 2] = -200.0  # nothing is left of these either
        logits_NV[0, seed % V] = 1.0
        (token,), (logprob,) = sample(logits_NV, 1.0, [uniform])
        possible = (logits_NV[0] > -100).nonzero()[:, 0].tolist()
        assert token in possible and math.isfinite(logprob)
        assert uniform > 0 or token == possible[0]


@pytest.mark.parametrize("temperature", [1.0, 0.0])
def test_the_only_possible_token_is_drawn_whatever_the_number(temperature):
    for place in (0, 511, 512, 1023, 1299):
        logits_NV = torch.full((3, 1300), -INF)
        logits_NV[:, place] = -1e4
        assert sample(logits_NV, temperature, [0.0, 0.5, LAST]) == ([place] * 3, [0.0] * 3)


def test_a_draw_close_to_a_border_is_not_rounded_across_it():
    for places in ((0, 1), (511, 512), (100, 1200)):
        logits_NV = torch.full((2, 1300), -INF)
        logits_NV[:, list(places)] = 0.0
        assert sample(logits_NV, 1.0, [0.5 - 2**-40, 0.5 + 2**-40])[0] == list(places)


@pytest.mark.parametrize("temperature", [1, 2])
def test_temperatures_may_be_whole_numbers(temperature):
    logits_NV, uniform_N = random(20, 100, dtype=torch.float32), uniforms(20)
    whole, real = ([SamplingParams(1, temperature=kind(temperature))] * 20 for kind in (int, float))
    assert sample_tokens(logits_NV, whole, uniform_N) == sample_tokens(logits_NV, real, uniform_N)


def test_every_row_has_its_own_temperature_and_is_its_own():
    logits_NV, temperature_N = random(40, 700, dtype=torch.float32), torch.tensor([0.0, 1.0, 0.3, 2.0]).repeat(10)
    uniform_N = torch.tensor(uniforms(40), dtype=torch.float64)
    token_N, logprob_N = ops.sample(logits_NV, temperature_N, uniform_N)
    for n in range(40):
        alone = ops.sample(logits_NV[n : n + 1], temperature_N[n : n + 1], uniform_N[n : n + 1])
        assert (token_N[n], logprob_N[n]) == (alone[0][0], alone[1][0])


@pytest.mark.parametrize("bad", [NAN, INF])
@pytest.mark.parametrize("temperature", [1.0, 0.0])
def test_what_is_not_a_number_is_reported_as_such_and_draws_a_token_that_exists(temperature, bad):
    for place in (0, 600, 1299):
        logits_NV = random(3, 1300, dtype=torch.float32)
        logits_NV[1, place] = bad
        tokens, logprobs = sample(logits_NV, temperature, [0.3] * 3)
        assert all(0 <= token < 1300 for token in tokens)
        assert list(map(math.isnan, logprobs)) == [False, True, False]
