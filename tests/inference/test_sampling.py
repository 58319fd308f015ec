"""Sampling draws from the right distribution, truncated or not, and reports its log-probabilities."""

import math

import pytest
import torch

from slimrl.inference.sampling import sample_tokens
from slimrl.types import SamplingParams

V = 700  # not a multiple of the block size


def logits_of(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, V, generator=torch.Generator().manual_seed(seed)) * 3


def grid(n: int) -> list[float]:
    """An even grid of uniforms: the draws are then the distribution itself, without sampling noise."""
    return [(i + 0.5) / n for i in range(n)]


@pytest.mark.parametrize("top_p", [1.0, 0.5])
@pytest.mark.parametrize("temperature", [1e-3, 1e-20, 1e-40, 1e-300, 5e-324])
def test_a_tiny_temperature_takes_the_likeliest_token(temperature, top_p):
    logits = torch.randn(4, V) * 30
    tokens, logprobs = sample_tokens(logits, [SamplingParams(1, temperature, top_p)] * 4, [0.0, 0.3, 0.7, 0.999])
    assert tokens == logits.argmax(-1).tolist() and logprobs == [0.0] * 4


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_tokens_follow_the_tempered_softmax(temperature):
    logits = logits_of(1)
    n = 20_000
    tokens, logprobs = sample_tokens(logits.expand(n, V), [SamplingParams(1, temperature)] * n, grid(n))
    expected = (logits[0] / temperature).softmax(-1)
    drawn = torch.bincount(torch.tensor(tokens), minlength=V) / n
    assert (drawn - expected).abs().max() < 2 / n + 1e-5
    assert logprobs == pytest.approx(expected.log()[tokens].tolist(), abs=1e-4)


def test_greedy_takes_the_argmax_and_reports_the_plain_log_probability():
    logits = logits_of(5)
    tokens, logprobs = sample_tokens(logits, [SamplingParams(1, 0.0)] * 5, [0.999] * 5)
    assert tokens == logits.argmax(-1).tolist()
    assert logprobs == pytest.approx(logits.log_softmax(-1).amax(-1).tolist(), abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("params", "kept"),
    [
        (SamplingParams(1, top_k=3), lambda p: p >= p.sort().values[-3]),
        (SamplingParams(1, min_p=0.2), lambda p: p >= 0.2 * p.max()),
        (SamplingParams(1, top_p=0.6), lambda p: _nucleus(p, 0.6)),
        (SamplingParams(1, top_k=2, top_p=0.999), lambda p: p >= p.sort().values[-2]),
    ],
)
def test_truncated_sampling_draws_exactly_the_kept_tokens(params, kept):
    logits, n = logits_of(1, seed=3), 5000
    probability = logits[0].softmax(-1)
    keep = kept(probability)
    expected = torch.where(keep, probability, 0.0) / probability[keep].sum()
    tokens, logprobs = sample_tokens(logits.expand(n, V), [params] * n, grid(n))
    drawn = torch.bincount(torch.tensor(tokens), minlength=V) / n
    assert (drawn - expected).abs().max() < 2 / n
    assert logprobs == pytest.approx(expected.log()[tokens].tolist(), abs=1e-4)


def _nucleus(probability: torch.Tensor, top_p: float) -> torch.Tensor:
    order = probability.argsort(descending=True)
    before = probability[order].cumsum(-1) - probability[order]
    return torch.zeros_like(probability, dtype=torch.bool).scatter(0, order, before < top_p)


def test_rows_with_different_settings_do_not_touch_each_other():
    logits = logits_of(3)
    mixed = [SamplingParams(1), SamplingParams(1, 0.0), SamplingParams(1, top_k=1)]
    together = sample_tokens(logits, mixed, [0.3, 0.3, 0.3])
    alone = [sample_tokens(logits[i : i + 1], [mixed[i]], [0.3]) for i in range(3)]
    assert together[0] == [tokens[0] for tokens, _ in alone]
    assert together[1] == pytest.approx([logprobs[0] for _, logprobs in alone])
    assert together[1][2] == pytest.approx(0.0, abs=1e-6)  # only one token is left


@pytest.mark.parametrize("uniform", [0.0, 1.0 - 2**-53])
def test_the_ends_of_the_unit_interval_never_draw_an_impossible_token(uniform):
    logits = torch.full((1, V), -math.inf)
    logits[0, 300:310] = torch.arange(10.0)
    tokens, logprobs = sample_tokens(logits, [SamplingParams(1)], [uniform])
    assert 300 <= tokens[0] < 310
    assert math.isfinite(logprobs[0])


def test_a_draw_close_to_a_boundary_is_not_rounded_across_it():
    logits = torch.full((1, V), -math.inf)
    logits[0, :2] = 0.0
    assert [sample_tokens(logits, [SamplingParams(1)], [0.5 + shift])[0] for shift in (-(2**-40), 2**-40)] == [[0], [1]]


def test_bfloat16_logits_are_sampled_in_float32():
    logits = logits_of(1).bfloat16()
    tokens, logprobs = sample_tokens(logits, [SamplingParams(1)], [0.4])
    assert logprobs[0] == pytest.approx(logits[0].float().log_softmax(-1)[tokens[0]].item(), abs=1e-5)


def test_the_smallest_top_p_leaves_the_likeliest_token():
    logits, params = logits_of(3), SamplingParams(1, top_p=1e-300)
    tokens, logprobs = sample_tokens(logits, [params] * 3, [0.0, 0.5, 0.999])
    assert tokens == logits.argmax(-1).tolist()
    assert logprobs == [0.0] * 3
