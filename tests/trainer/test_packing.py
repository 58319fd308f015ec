"""Packed sequences with shared prompts give what separate forwards of transformers' own model give."""

import pytest
import torch

from slimrl.models.native import ops
from slimrl.trainer.logprobs import target_logprobs
from slimrl.trainer.packing import Pack, Segment, pack_samples
from slimrl.types import Sample
from tests.models.native.cases import skip_without_tiles, wide_policy
from tests.tiny import FAMILIES
from tests.trainer.samples import (
    CPU,
    assert_gradients_equal,
    gradients,
    policy_module,
    random_samples,
    reference_logprobs,
    reference_module,
)

EVERYTHING = 10_000


def packed_logprobs(module, samples: list[Sample], max_tokens: int) -> list[torch.Tensor]:
    """The trained tokens' log-probabilities, by sample."""
    by_sample: list[torch.Tensor] = [torch.empty(0)] * len(samples)
    for pack in pack_samples(samples, max_tokens, CPU):
        logprob_N, *_ = target_logprobs(module, pack, temperature=1.0)
        for b in set(pack.sample_N.tolist()):
            by_sample[b] = logprob_N[pack.sample_N == b]
    return by_sample


BUDGETS = [EVERYTHING, 50, 1]
CASES = [
    pytest.param(family, budget, marks=[pytest.mark.slow] if (i + j) % 3 else [])
    for i, family in enumerate(FAMILIES)
    for j, budget in enumerate(BUDGETS)
]


@pytest.mark.parametrize(("family", "max_tokens"), CASES)
def test_packed_logprobs_and_gradients_equal_separate_forwards(family, max_tokens):
    ours, theirs = policy_module(family), reference_module(family)
    for seed in range(3):
        samples = random_samples(seed)
        packed, separate = packed_logprobs(ours, samples, max_tokens), reference_logprobs(theirs, samples)
        for logprob_N, expected_N in zip(packed, separate, strict=True):
            torch.testing.assert_close(logprob_N, expected_N, rtol=0, atol=2e-5)
        weights = torch.randn(sum(map(len, separate)), generator=torch.Generator().manual_seed(seed))
        (torch.cat(packed) * weights).sum().backward()
        (torch.cat(separate) * weights).sum().backward()
        assert_gradients_equal(gradients(ours), gradients(theirs))


def test_in_bfloat16_a_gradient_is_near_that_in_float32():
    samples = random_samples(1)
    found = []
    for dtype in (torch.bfloat16, torch.float32):
        module = policy_module("llama").to(torch.bfloat16).to(dtype)  # the same weights
        torch.cat(packed_logprobs(module, samples, EVERYTHING)).sum().backward()
        found.append({name: gradient.float() for name, gradient in gradients(module).items()})
    for name, gradient in found[0].items():
        error = (gradient - found[1][name]).norm() / found[1][name].norm()
        assert error < 0.05, f"{name}: {error:.4f}"


def test_row_tokens_are_the_unique_tokens_of_random_samples():
    for seed in range(20):
        samples = random_samples(seed)
        (pack,) = pack_samples(samples, EVERYTHING, CPU)
        unique = {s.token_ids_T[:t] for s in samples for t in range(1, len(s.token_ids_T))}
        assert len(pack.token_ids_T) == len(unique)
        for token, position, (number, segment) in zip(
            pack.token_ids_T.tolist(), pack.positions_T.tolist(), _owners(pack), strict=True
        ):
            assert position == segment.position + number
            assert token in {s.token_ids_T[position] for s in samples if position < len(s.token_ids_T)}


def _owners(pack: Pack) -> list[tuple[int, Segment]]:
    """The segment of every token of the row, and its number within."""
    ordered = sorted(pack.segments, key=lambda segment: segment.start)
    return [(number, segment) for segment in ordered for number in range(segment.num_queries)]


@pytest.mark.parametrize("max_tokens", [1, 20, 40, 64, 200])
def test_packs_keep_to_their_budget_and_hold_every_trained_token_once(max_tokens):
    for seed in range(20):
        samples = random_samples(seed)
        packs = pack_samples(samples, max_tokens, CPU)
        assert all(len(pack.token_ids_T) <= max_tokens or pack.sample_N.unique().numel() == 1 for pack in packs)
        assert sorted(trained for pack in packs for trained in _trained(pack)) == sorted(
            (b, token)
            for b, sample in enumerate(samples)
            for token, mask in zip(sample.token_ids_T, sample.loss_mask_T, strict=True)
            if mask
        )


def _trained(pack: Pack) -> list[tuple[int, int]]:
    return list(zip(pack.sample_N.tolist(), pack.target_N.tolist(), strict=True))


@pytest.mark.parametrize("family", ["llama", "gemma3"])
@pytest.mark.parametrize("max_tokens", [EVERYTHING, 50])
def test_the_matrix_unit_is_as_near_to_float32_as_pytorch(family, max_tokens, monkeypatch):
    """In log-probabilities and in every parameter's gradient."""
    skip_without_tiles()
    found = []
    for kernels, dtype in ((True, torch.bfloat16), (False, torch.bfloat16), (False, torch.float32)):
        if not kernels:
            monkeypatch.setattr(ops, "available", lambda tensor: False)
        module, logprobs = wide_policy(family).to(dtype), torch.empty(0)
        for seed in range(3):
            logprobs = torch.cat([logprobs, *packed_logprobs(module, random_samples(seed), max_tokens)])
        logprobs.sum().backward()
        found.append({"logprobs": logprobs.detach(), **gradients(module)})
    ours, plain, exact = found
    for name, expected in exact.items():
        assert 0 < (ours[name] - expected).norm() < 1.5 * (plain[name] - expected).norm(), name


def test_on_the_matrix_unit_the_gradients_of_a_pack_are_the_same_bits_every_time():
    skip_without_tiles()
    module, found = wide_policy("llama"), []
    for _ in range(2):
        torch.cat(packed_logprobs(module, random_samples(0), 100)).sum().backward()
        found.append(gradients(module))
    assert all(torch.equal(found[1][name], gradient) for name, gradient in found[0].items())
