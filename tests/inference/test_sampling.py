"""Sampling, by the kernel and by PyTorch, draws from the right distribution and reports its log-probabilities."""

import math

import pytest
import torch
from torch import Tensor

from slimrl.inference.sampling import sample_tokens
from slimrl.models.native import ops
from slimrl.types import SamplingParams
from tests.models.native.cases import INF, NAN, random, skip_without_kernels, threads

FLOAT, ROUGH = torch.float32, torch.bfloat16
DTYPES = [FLOAT, ROUGH]
LAST = 1 - 2**-53  # the largest number in [0, 1)
V = 1300  # of no whole number of blocks, neither of the kernel's 512 nor of PyTorch's 256
BORDERS = (0, 255, 256, 511, 512, 1023, 1299)


@pytest.fixture(params=["kernel", "pytorch"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "kernel":
        skip_without_kernels()
    else:
        monkeypatch.setattr(ops, "available", lambda tensor: False)


def sample(logits_NV: Tensor, uniform_N: list[float], *settings: float, **more: float) -> tuple[list[int], list[float]]:
    params = SamplingParams(1, *settings, **more)  # type: ignore[arg-type]
    return sample_tokens(logits_NV, [params] * len(uniform_N), uniform_N)


def logits_of(N: int, num_tokens: int = V, seed: int = 0, dtype: torch.dtype = FLOAT) -> Tensor:
    return 3 * random(N, num_tokens, seed=seed, dtype=dtype)


def uniforms(N: int) -> list[float]:
    return torch.rand(N, generator=torch.Generator().manual_seed(1), dtype=torch.float64).tolist()


def nucleus(probability_V: Tensor, top_p: float) -> Tensor:
    order = probability_V.argsort(descending=True)
    before = probability_V[order].cumsum(-1) - probability_V[order]
    return torch.zeros_like(probability_V, dtype=torch.bool).scatter(0, order, before < top_p)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "kept", "dtype"),
    [
        *(({"temperature": t}, lambda p: p >= 0, dtype) for t in (0.5, 1.0, 2.0) for dtype in DTYPES),
        ({"top_k": 3}, lambda p: p >= p.sort().values[-3], FLOAT),
        ({"min_p": 0.2}, lambda p: p >= 0.2 * p.max(), FLOAT),
        ({"top_p": 0.6}, lambda p: nucleus(p, 0.6), FLOAT),
        ({"top_k": 2, "top_p": 0.999}, lambda p: p >= p.sort().values[-2], FLOAT),
    ],
)
def test_exactly_the_kept_tokens_follow_the_tempered_softmax(settings, kept, dtype) -> None:
    """An even grid of uniforms draws the distribution itself, without sampling noise."""
    logits_1V, n = logits_of(1, seed=3, dtype=dtype), 20_000 if "temperature" in settings else 5000
    probability_V = (logits_1V[0].double() / settings.get("temperature", 1.0)).softmax(-1)
    keep_V = kept(probability_V)
    expected_V = torch.where(keep_V, probability_V, 0.0) / probability_V[keep_V].sum()
    tokens, logprobs = sample(logits_1V.expand(n, -1).contiguous(), [(i + 0.5) / n for i in range(n)], **settings)
    drawn = torch.bincount(torch.tensor(tokens), minlength=V) / n
    assert (drawn - expected_V).abs().max() < 2 / n + 1e-5
    assert logprobs == pytest.approx(expected_V.log()[tokens].tolist(), abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("temperature", [1.0, 0.6, 0.0])
@pytest.mark.parametrize("way", ["kernel"], indirect=True)
@pytest.mark.parametrize(("num", "N"), [(1, 5), (2, 200), (511, 500), (512, 500), (513, 500), (49152, 40)])
def test_both_ways_draw_the_same_tokens(num, N, temperature, dtype, monkeypatch) -> None:
    logits_NV, uniform_N = logits_of(N, num, dtype=dtype), uniforms(N)
    ours = sample(logits_NV, uniform_N, temperature)
    with threads(2):
        assert ours == sample(logits_NV, uniform_N, temperature)
    logprob_NV = (logits_NV.double() / (temperature or 1.0)).log_softmax(-1)
    exact = [float(row[token]) for row, token in zip(logprob_NV, ours[0], strict=True)]
    assert ours[1] == pytest.approx(exact, abs=1e-5)
    monkeypatch.setattr(ops, "available", lambda tensor: False)
    same = [a == b for a, b in zip(ours[0], sample(logits_NV, uniform_N, temperature)[0], strict=True)]
    assert sum(same) >= N - 1 - N // 200  # a uniform next to the border between two tokens may fall on either side


@pytest.mark.parametrize("dtype", DTYPES)
def test_greedy_takes_the_first_of_the_largest_whatever_the_number(dtype: torch.dtype) -> None:
    logits_NV = random(6, V, dtype=dtype).clamp(max=1.0)
    ties = [(0,), (V - 1,), (511, 512), (512, 513), (3, 4, 700), (0, V - 1)]
    for row, places in enumerate(ties):
        logits_NV[row, list(places)] = 5.0
    for uniform in (0.0, 0.5, LAST):
        tokens, logprobs = sample(logits_NV, [uniform] * 6, 0.0)
        assert tokens == [places[0] for places in ties]
        assert logprobs == pytest.approx(logits_NV.double().log_softmax(-1).amax(-1).tolist(), abs=1e-5)


@pytest.mark.parametrize("top_p", [1.0, 0.5])
@pytest.mark.parametrize("temperature", [1e-3, 1e-20, 1e-40, 1e-300, 5e-324])
def test_a_tiny_temperature_or_top_p_takes_the_likeliest_token(temperature: float, top_p: float) -> None:
    logits_NV = 10 * logits_of(4)
    for settings in ((temperature, top_p), (1.0, 1e-300)):
        tokens, logprobs = sample(logits_NV, [0.0, 0.3, 0.7, 0.999], *settings)
        assert tokens == logits_NV.argmax(-1).tolist() and logprobs == [0.0] * 4


@pytest.mark.parametrize("num", [1, 511, 512, 513, 2000])
@pytest.mark.parametrize("uniform", [0.0, 2.0**-60, 0.5, LAST])
def test_no_uniform_draws_a_token_without_mass(uniform: float, num: int) -> None:
    for seed in range(20):
        logits_NV = logits_of(1, num, seed)
        logits_NV[random(1, num, seed=100 + seed) > -1.0] = -INF  # most of them
        logits_NV[:, num // 4 : num // 2] = -200.0  # nothing is left of these either
        logits_NV[0, seed % num] = 1.0
        (token,), (logprob,) = sample(logits_NV, [uniform])
        possible = (logits_NV[0] > -100).nonzero()[:, 0].tolist()
        assert token in possible and math.isfinite(logprob)
        assert uniform > 0 or token == possible[0]


def test_a_draw_at_a_border_of_blocks_or_close_to_one_of_two_tokens_is_exact() -> None:
    for place in BORDERS:
        logits_NV = torch.full((3, V), -INF)
        logits_NV[:, place] = -1e4
        for temperature in (1.0, 0.0):
            assert sample(logits_NV, [0.0, 0.5, LAST], temperature) == ([place] * 3, [0.0] * 3)
    for places in ((0, 1), (255, 256), (511, 512), (100, 1200)):
        logits_NV = torch.full((2, V), -INF)
        logits_NV[:, list(places)] = 0.0
        assert sample(logits_NV, [0.5 - 2**-40, 0.5 + 2**-40])[0] == list(places)


def test_every_row_has_its_own_settings() -> None:
    kinds = [(1.0,), (0.0,), (0.3,), (2,), (1.0, 1.0, 1), (1.0, 0.5)]
    params = [SamplingParams(1, *kind) for kind in kinds] * 5  # type: ignore[arg-type]
    logits_NV, uniform_N = logits_of(len(params)), uniforms(len(params))
    tokens, logprobs = sample_tokens(logits_NV, params, uniform_N)
    for row, row_params in enumerate(params):
        alone = sample_tokens(logits_NV[row : row + 1], [row_params], uniform_N[row : row + 1])
        assert alone == ([tokens[row]], [pytest.approx(logprobs[row], abs=1e-6)])


@pytest.mark.parametrize("bad", [NAN, INF])
@pytest.mark.parametrize("temperature", [1.0, 0.0])
def test_what_is_not_a_number_is_reported_as_such_and_draws_a_token_that_exists(temperature: float, bad: float) -> None:
    for place in (0, 600, V - 1):
        logits_NV = logits_of(3)
        logits_NV[1, place] = bad
        tokens, logprobs = sample(logits_NV, [0.3] * 3, temperature)
        assert all(0 <= token < V for token in tokens)
        assert list(map(math.isnan, logprobs)) == [False, True, False]
