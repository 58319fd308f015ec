"""The losses beside the policy loss: advantages worked out by hand, and whole steps on a tiny model."""

import copy
import random
from dataclasses import replace
from itertools import chain

import pytest
import torch

from slimrl.config.loss import LossConfig
from slimrl.config.train import OptimConfig, TrainerConfig
from slimrl.monitor.metrics import lookup
from slimrl.trainer.aux_losses import build_aux_losses, gae, value_loss
from slimrl.trainer.losses import kl_to_reference
from slimrl.trainer.optim import MasterAdamW
from slimrl.trainer.step import TrainStep
from slimrl.transport.base import Batch
from tests.trainer.samples import (
    TakesGradients,
    assert_gradients_equal,
    gradients,
    policy_module,
    random_samples,
    reference_logprobs,
    reference_module,
)

SEQ_LEN = 100


def estimate(rewards, values, sequences, gamma, gae_lambda):
    found = gae(torch.tensor(rewards), torch.tensor(values), torch.tensor(sequences), gamma, gae_lambda)
    return [tensor.tolist() for tensor in found]


BY_HAND = {
    # delta_1 = 1 - 0.5 = 0.5; delta_0 = 0 + 0.9 x 0.5 - 0.2 = 0.25; A_0 = 0.25 + 0.9 x 0.8 x 0.5
    "two tokens": (([0.0, 1.0], [0.2, 0.5], [3, 3], 0.9, 0.8), [0.25 + 0.36, 0.5]),
    "lambda 1 looks to the end": (([1.0, 0.0, 2.0], [0.1, 0.2, 0.3], [0, 0, 0], 1.0, 1.0), [2.9, 1.8, 1.7]),
    "lambda 0 looks one token ahead": (([1.0, 0.0, 2.0], [0.1, 0.2, 0.3], [0, 0, 0], 1.0, 0.0), [1.1, 0.1, 1.7]),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_advantages_and_returns_by_hand(case):
    given, expected = BY_HAND[case]
    advantages, returns = estimate(*given)
    assert advantages == pytest.approx(expected)
    assert returns == pytest.approx([a + v for a, v in zip(expected, given[1], strict=True)])


def test_sequences_know_nothing_of_each_other():
    rng = random.Random(0)
    lengths = [1, 4, 2, 7]
    rewards, values = ([[rng.random() for _ in range(n)] for n in lengths] for _ in range(2))
    apart = [estimate(r, v, [0] * len(r), 0.95, 0.9) for r, v in zip(rewards, values, strict=True)]
    sequences = [number for number, n in enumerate(lengths) for _ in range(n)]
    together = estimate([*chain(*rewards)], [*chain(*values)], sequences, 0.95, 0.9)
    for found, expected in zip(together, zip(*apart, strict=True), strict=True):
        assert found == pytest.approx([*chain(*expected)])


@pytest.mark.parametrize("gae_lambda", [0.95, 1.0])
def test_long_sequences_keep_their_advantages(gae_lambda):
    reward_N, value_N = torch.zeros(20_000), torch.randn(20_000, generator=torch.Generator().manual_seed(0))
    reward_N[-1] = 1.0
    sequence_N = torch.zeros(20_000, dtype=torch.long)
    found = gae(reward_N, value_N, sequence_N, 1.0, gae_lambda)
    exact = gae(reward_N.double(), value_N.double(), sequence_N, 1.0, gae_lambda)
    for ours, expected in zip(found, exact, strict=True):
        torch.testing.assert_close(ours.double(), expected, rtol=1e-5, atol=1e-5)


def step_of(samples, loss, reference=None, micro_batch_tokens=10_000, **critic):
    """(gradients of the policy and of the terms' heads, metrics); `critic` overwrites a value head's weights."""
    module = policy_module("llama")
    aux_losses = build_aux_losses(loss.resolve(), module, lambda: reference or policy_module("llama"))
    heads = [head.module for aux_loss in aux_losses for head in aux_loss.heads.values()]
    for head in heads:
        for name, value in critic.items():
            getattr(head.linear, name).data.copy_(value)
    optimizer = TakesGradients(module, *heads)
    config = TrainerConfig(loss=loss, micro_batch_tokens=micro_batch_tokens)
    metrics = TrainStep(module, optimizer, config, SEQ_LEN, aux_losses)(Batch(tuple(samples), 1.0), 1.0, version=0)
    for name in metrics:
        lookup(name)
    return optimizer.taken, metrics


@pytest.mark.slow
@pytest.mark.parametrize("micro_batch_tokens", [10_000, 60, 1])
def test_the_divergence_pulls_towards_the_reference(micro_batch_tokens):
    samples = [replace(sample, advantages_T=(0.0,) * len(sample.token_ids_T)) for sample in random_samples(1)]
    reference = policy_module("llama", seed=1)
    loss = LossConfig(kl_beta=0.3)
    (gradient,), metrics = step_of(samples, loss, reference, micro_batch_tokens)
    module = reference_module("llama")
    new_N = torch.cat(reference_logprobs(module, samples))
    with torch.no_grad():
        reference_N = torch.cat(reference_logprobs(reference_module("llama", seed=1), samples))
    kl_N = kl_to_reference(new_N, reference_N)
    (0.3 * kl_N.mean()).backward()
    assert_gradients_equal(gradient, gradients(module), rtol=2e-4)
    assert metrics["loss/kl_reference"] == pytest.approx(float(kl_N.detach().mean()), rel=1e-4)
    assert all(parameter.grad is None for parameter in reference.parameters())


def earned(samples):
    """The samples as they are for a value head: each token's reward, here 1 for the last one of every second."""
    changed = []
    for number, sample in enumerate(samples):
        last = max(t for t, mask in enumerate(sample.loss_mask_T) if mask)
        rewards = [0.0] * len(sample.token_ids_T)
        rewards[last] = float(number % 2)
        changed.append(replace(sample, advantages_T=(0.0,) * len(rewards), rewards_T=tuple(rewards)))
    return changed


@pytest.mark.slow
@pytest.mark.parametrize("micro_batch_tokens", [10_000, 60, 1])
def test_a_critic_gives_advantages_by_gae_and_learns_the_returns(micro_batch_tokens):
    samples, loss = earned(random_samples(2)), LossConfig(type="ppo", advantage="gae", gamma=0.99)
    module = reference_module("llama")
    size = module.config.hidden_size
    weight = torch.randn(1, size, generator=torch.Generator().manual_seed(0))
    found, metrics = step_of(samples, loss, micro_batch_tokens=micro_batch_tokens, weight=weight)

    head = torch.nn.Linear(size, 1)
    head.weight.data.copy_(weight)
    head.bias.data.zero_()
    logprobs, values, advantages, returns = reference_logprobs(module, samples), [], [], []
    for sample in samples:
        hidden = module.model(input_ids=torch.tensor([sample.token_ids_T]), use_cache=False).last_hidden_state[0]
        trained = [t for t, mask in enumerate(sample.loss_mask_T) if mask]
        value = head(hidden[[t - 1 for t in trained]])[:, 0]
        reward = torch.tensor([sample.rewards_T[t] for t in trained])
        advantage, target = gae(reward, value.detach(), torch.zeros(len(trained), dtype=torch.long), 0.99, 0.95)
        values.append(value)
        advantages.append(advantage)
        returns.append(target)
    old = torch.cat([torch.tensor([s.logprobs_T[t] for t, m in enumerate(s.loss_mask_T) if m]) for s in samples])
    rho, A = (torch.cat(logprobs) - old).exp(), torch.cat(advantages)
    policy = -torch.minimum(rho * A, rho.clamp(0.8, 1.2) * A).mean()
    error = value_loss(torch.cat(values), torch.cat(returns)).mean()
    (policy + 0.1 * error).backward()
    expected = gradients(module), gradients(head)
    assert_gradients_equal(found[0], expected[0], rtol=5e-4)
    assert_gradients_equal({k.removeprefix("linear."): v for k, v in found[1].items()}, expected[1], rtol=5e-4)
    assert metrics["loss/value"] == pytest.approx(float(error.detach()), rel=1e-4)
    assert metrics["loss/policy"] == pytest.approx(float(policy.detach()), rel=1e-3)
    R = torch.cat(returns)
    explained = 1 - 2 * float(error.detach()) / float(R.var(unbiased=False))
    assert metrics["loss/value_explained"] == pytest.approx(explained, rel=1e-3)


def test_a_heads_learning_rate_is_its_own_and_its_state_comes_back():
    module = policy_module("llama")
    loss = LossConfig(type="ppo", advantage="gae", value_lr=0.05).resolve()
    (aux_loss,) = build_aux_losses(loss, module, lambda: module)
    optimizer = MasterAdamW(module, OptimConfig(lr=1e-6), aux_loss.heads)
    before = copy.deepcopy(module.state_dict())
    config = TrainerConfig(loss=LossConfig(type="ppo", advantage="gae", value_lr=0.05), optim=OptimConfig(lr=1e-6))
    TrainStep(module, optimizer, config, SEQ_LEN, [aux_loss])(Batch(tuple(earned(random_samples(0))), 1.0), 1.0, 0)
    moved = aux_loss.heads["value_head"].module.linear.weight.detach().abs().max()
    assert float(moved) == pytest.approx(0.05, rel=0.01)  # AdamW's first update is the learning rate
    assert max(float((p - before[name]).abs().max()) for name, p in module.state_dict().items()) < 2e-6

    (other,) = build_aux_losses(loss, module, lambda: module)
    again = MasterAdamW(policy_module("llama"), OptimConfig(lr=1e-6), other.heads)
    again.load_state_dict(optimizer.state_dict())
    assert torch.equal(other.head.linear.weight, aux_loss.head.linear.weight)
