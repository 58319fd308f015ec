"""Every loss and aggregation where numbers are odd: nothing to train, nothing to compare with, long, or of all ages."""

import math
from itertools import product
from typing import get_args

import pytest
import torch

from slimrl.config.loss import ADVANTAGES, POLICIES, Aggregation, LossConfig
from slimrl.orchestrator.advantages import group_advantages
from slimrl.trainer.aux_losses import gae
from slimrl.trainer.losses import TokenBatch, kl_to_reference, token_weights
from slimrl.trainer.own_loss import load_policy_loss
from slimrl.types import Sample

AGGREGATIONS = get_args(Aggregation)
COMPARING = sorted(ADVANTAGES.keys() - {"reinforce", "rae", "gae"})
EACH = [*product(POLICIES, AGGREGATIONS)]
LONG = 20_000


def policy_loss(policy, tokens, **numbers):
    return load_policy_loss(LossConfig(policy=policy, **numbers).resolve())(tokens)


def weighed(tokens, policy, aggregation):
    """The loss as a step adds it up, and its gradient."""
    new_N = tokens.new_N.detach().clone().requires_grad_()
    tokens = TokenBatch(new_N, tokens.old_N, tokens.advantage_N, tokens.sequence_N)
    lengths = tokens.sequence_N.bincount().tolist()
    weights = torch.tensor(token_weights(lengths, aggregation, seq_len=2 * LONG), dtype=new_N.dtype)
    loss_N, _ = policy_loss(policy, tokens)
    loss = (loss_N * weights[tokens.sequence_N]).sum()
    loss.backward()
    return loss.item(), new_N.grad


def random_tokens(lengths, spread, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    num = sum(lengths)
    sequence_N = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    new_N = torch.empty(num, dtype=torch.float64).exponential_(generator=generator).neg()
    old_N = new_N - spread * torch.randn(num, generator=generator, dtype=torch.float64)
    advantage_N = torch.randn(len(lengths), generator=generator, dtype=torch.float64)[sequence_N]
    return TokenBatch(new_N.float().to(dtype), old_N.float().to(dtype), advantage_N.float().to(dtype), sequence_N)


def in_float64(tokens):
    return TokenBatch(tokens.new_N.double(), tokens.old_N.double(), tokens.advantage_N.double(), tokens.sequence_N)


def test_a_sample_without_a_trained_token_cannot_be_made():
    with pytest.raises(AssertionError, match="at least one trained token"):
        Sample((1, 2), (False, False), (0.0, 0.0), (1.0, 1.0), version=0)


@pytest.mark.parametrize("policy", POLICIES)
def test_no_tokens_have_no_loss(policy):
    empty, none = torch.zeros(0), torch.zeros(0, dtype=torch.long)
    loss_N, clipped_N = policy_loss(policy, TokenBatch(empty, empty, empty, none))
    assert loss_N.shape == clipped_N.shape == (0,)


@pytest.mark.parametrize("advantage", COMPARING)
def test_a_group_of_one_has_nothing_to_be_compared_with(advantage):
    assert group_advantages([0.7], [5], LossConfig(advantage=advantage).resolve()) == [0.0]


def test_a_constant_baseline_needs_no_group():
    assert group_advantages([0.7], [5], LossConfig(type="reinforce").resolve()) == pytest.approx([0.2])


@pytest.mark.parametrize(("policy", "aggregation"), EACH)
@pytest.mark.parametrize("advantage", COMPARING)
def test_equal_rewards_have_neither_loss_nor_gradient(policy, aggregation, advantage):
    lengths = [3, 1, 8, 2]
    loss = LossConfig(advantage=advantage).resolve()
    values = torch.tensor(group_advantages([0.3] * len(lengths), lengths, loss))
    tokens = random_tokens(lengths, spread=3.0)
    tokens = TokenBatch(tokens.new_N, tokens.old_N, values[tokens.sequence_N], tokens.sequence_N)
    loss, gradient_N = weighed(tokens, policy, aggregation)
    assert loss == 0.0
    assert gradient_N.tolist() == [0.0] * len(gradient_N)


@pytest.mark.parametrize(("policy", "aggregation"), EACH)
def test_long_sequences_lose_no_accuracy_in_float32(policy, aggregation):
    tokens = random_tokens([LONG, 1, LONG // 2, 3], spread=0.3 if policy != "gspo" else 0.01)
    loss, gradient_N = weighed(tokens, policy, aggregation)
    exact, exact_gradient_N = weighed(in_float64(tokens), policy, aggregation)
    size = float((exact_gradient_N * tokens.new_N.double()).abs().sum())  # what is added up, whatever its signs
    assert loss == pytest.approx(exact, abs=1e-5 * max(size, abs(exact)))
    torch.testing.assert_close(gradient_N.double(), exact_gradient_N, rtol=1e-5, atol=1e-12)
    if aggregation == "sequence":  # a rollout's tokens weigh a quarter together, be they 20,000 or one
        weights = token_weights([LONG, 1, LONG // 2, 3], aggregation, 2 * LONG)
        assert [w * n for w, n in zip(weights, [LONG, 1, LONG // 2, 3], strict=True)] == pytest.approx([0.25] * 4)


def test_a_long_sequences_ratio_is_the_mean_of_all_its_tokens():
    new_N = torch.full((LONG,), -1.0)
    old_N = new_N - 0.01  # added up in float32 one by one, these are off by 0.1%
    tokens = TokenBatch(new_N, old_N, -torch.ones(LONG), torch.zeros(LONG, dtype=torch.long))
    loss_N, _ = policy_loss("gspo", tokens)
    exact = (new_N.double() - old_N.double()).mean().exp()
    assert loss_N.double().sub(exact).abs().max() < 1e-6


def test_long_sequences_keep_their_advantages_with_a_value_head():
    generator = torch.Generator().manual_seed(0)
    reward_N, value_N = torch.zeros(LONG), torch.randn(LONG, generator=generator)
    reward_N[-1] = 1.0
    sequence_N = torch.zeros(LONG, dtype=torch.long)
    for gae_lambda in (0.95, 1.0):
        found = gae(reward_N, value_N, sequence_N, 1.0, gae_lambda)
        exact = gae(reward_N.double(), value_N.double(), sequence_N, 1.0, gae_lambda)
        for ours, expected in zip(found, exact, strict=True):
            torch.testing.assert_close(ours.double(), expected, rtol=1e-5, atol=1e-5)


def test_long_sequences_keep_their_divergence_from_a_reference():
    tokens = random_tokens([LONG], spread=0.3)
    kl = kl_to_reference(tokens.new_N, tokens.old_N).mean().item()
    exact = kl_to_reference(tokens.new_N.double(), tokens.old_N.double()).mean().item()
    assert kl == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize(("policy", "aggregation"), EACH)
def test_fresh_and_stale_samples_in_one_batch_count_as_each_would_alone(policy, aggregation):
    spreads = (0.0, 0.1, 2.0, 30.0)  # fresh, a little old, very old, of another model
    lengths = [5, 9, 1, 30]
    parts = [random_tokens([n], spread, seed=n) for n, spread in zip(lengths, spreads, strict=True)]
    sequence_N = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    together = TokenBatch(
        torch.cat([part.new_N for part in parts]),
        torch.cat([part.old_N for part in parts]),
        torch.cat([part.advantage_N for part in parts]),
        sequence_N,
    )
    loss, gradient_N = weighed(together, policy, aggregation)
    assert math.isfinite(loss) and gradient_N.isfinite().all()
    weights = token_weights(lengths, aggregation, seq_len=2 * LONG)
    alone = [policy_loss(policy, part)[0] * weight for part, weight in zip(parts, weights, strict=True)]
    assert loss == pytest.approx(sum(float(part.sum()) for part in alone), rel=1e-5)
    fresh_N = gradient_N[: lengths[0]]  # the plain policy gradient, whatever stands beside it
    assert fresh_N.tolist() == pytest.approx((-parts[0].advantage_N * weights[0]).tolist(), rel=1e-5)
