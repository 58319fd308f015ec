"""Generalised advantage estimation against numbers worked out by hand and against its definition."""

import random
from itertools import chain

import pytest
import torch

from slimrl.trainer.aux_losses import ValueHead, gae, value_loss


def estimate(rewards, values, sequences, gamma, gae_lambda):
    found = gae(torch.tensor(rewards), torch.tensor(values), torch.tensor(sequences), gamma, gae_lambda)
    return [tensor.tolist() for tensor in found]


def test_two_tokens_by_hand():
    # delta_1 = 1 - 0.5 = 0.5; delta_0 = 0 + 0.9 x 0.5 - 0.2 = 0.25; A_0 = 0.25 + 0.9 x 0.8 x 0.5
    advantages, returns = estimate([0.0, 1.0], [0.2, 0.5], [3, 3], 0.9, 0.8)
    assert advantages == pytest.approx([0.25 + 0.36, 0.5])
    assert returns == pytest.approx([0.61 + 0.2, 0.5 + 0.5])


def test_without_discount_lambda_one_is_what_is_still_to_come_less_the_value():
    advantages, returns = estimate([1.0, 0.0, 2.0], [0.1, 0.2, 0.3], [0, 0, 0], 1.0, 1.0)
    assert advantages == pytest.approx([2.9, 1.8, 1.7])
    assert returns == pytest.approx([3.0, 2.0, 2.0])


def test_lambda_zero_looks_one_token_ahead():
    advantages, _ = estimate([1.0, 0.0, 2.0], [0.1, 0.2, 0.3], [0, 0, 0], 1.0, 0.0)
    assert advantages == pytest.approx([1.0 + 0.2 - 0.1, 0.3 - 0.2, 2.0 - 0.3])


def test_sequences_know_nothing_of_each_other():
    rng = random.Random(0)
    lengths = [1, 4, 2, 7]
    rewards, values = ([[rng.random() for _ in range(n)] for n in lengths] for _ in range(2))
    apart = [estimate(r, v, [0] * len(r), 0.95, 0.9) for r, v in zip(rewards, values, strict=True)]
    sequences = [number for number, n in enumerate(lengths) for _ in range(n)]
    together = estimate([*chain(*rewards)], [*chain(*values)], sequences, 0.95, 0.9)
    for found, expected in zip(together, zip(*apart, strict=True), strict=True):
        assert found == pytest.approx([*chain(*expected)])


def test_a_value_head_begins_at_zero_and_learns_a_linear_value():
    generator = torch.Generator().manual_seed(0)
    hidden_ND = torch.randn(64, 8, generator=generator)
    target_N = hidden_ND @ torch.randn(8, generator=generator) + 0.5
    head = ValueHead(8, torch.device("cpu"))
    assert head(hidden_ND).tolist() == [0.0] * 64
    optimizer = torch.optim.Adam(head.parameters(), lr=0.1)
    for _ in range(300):
        optimizer.zero_grad()
        value_loss(head(hidden_ND), target_N).mean().backward()
        optimizer.step()
    assert float(value_loss(head(hidden_ND), target_N).mean().detach()) < 1e-4


def test_the_gradient_of_the_value_loss_is_the_error():
    value_N = torch.tensor([0.5, -1.0], requires_grad=True)
    value_loss(value_N, torch.tensor([1.0, 1.0])).sum().backward()
    assert value_N.grad.tolist() == [-0.5, -2.0]
