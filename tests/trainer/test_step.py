"""One optimizer step: the batch's gradient, the guard, and what is left alone."""

import itertools
import math
import threading
from dataclasses import replace

import pytest
import torch
from torch import nn

from slimrl.config.loss import POLICIES, LossConfig
from slimrl.config.rollout import LimitsConfig
from slimrl.config.train import GuardConfig, OptimConfig, TrainerConfig
from slimrl.inference.engine import Engine
from slimrl.inference.local_client import LocalClient
from slimrl.models.chat.template import ChatFormat
from slimrl.monitor.metrics import lookup
from slimrl.rollout.episode import EpisodeSpec, RolloutContext
from slimrl.rollout.games import run_groups
from slimrl.rollout.loop import run_episodes
from slimrl.trainer.losses import TokenBatch, token_weights
from slimrl.trainer.optim import MasterAdamW
from slimrl.trainer.own_loss import load_policy_loss
from slimrl.trainer.step import StepRefusedError, TrainStep
from slimrl.transport.base import Batch
from slimrl.types import Sample, SamplingParams, Task, Turn
from tests.rollout.scripted import OneTask
from tests.tiny import FAMILIES, tiny_tokenizer
from tests.trainer.samples import (
    TakesGradients,
    assert_gradients_equal,
    gradients,
    near_policy,
    policy_module,
    random_samples,
    reference_logprobs,
    reference_module,
)

SEQ_LEN = 100


def batch_of(samples: list[Sample], temperature: float = 1.0) -> Batch:
    return Batch(tuple(samples), temperature)


def gradient_of(samples: list[Sample], loss: LossConfig, micro_batch_tokens: int):
    module = policy_module("llama")
    optimizer = TakesGradients(module)
    config = TrainerConfig(loss=loss, micro_batch_tokens=micro_batch_tokens)
    metrics = TrainStep(module, optimizer, config, SEQ_LEN)(batch_of(samples), lr_factor=1.0, version=0)
    return optimizer.taken[0], metrics


def reference_gradient(samples: list[Sample], loss: LossConfig) -> dict[str, torch.Tensor]:
    """The formula on the whole batch at once, with separate forwards."""
    module, loss = reference_module("llama"), loss.resolve()
    logprobs = reference_logprobs(module, samples)
    lengths = [len(logprob_N) for logprob_N in logprobs]

    def trained(values):
        return torch.tensor([v for s in samples for v, m in zip(values(s), s.loss_mask_T, strict=True) if m])

    tokens = TokenBatch(
        new_N=torch.cat(logprobs),
        old_N=trained(lambda sample: sample.logprobs_T),
        advantage_N=trained(lambda sample: sample.advantages_T),
        sequence_N=torch.arange(len(samples)).repeat_interleave(torch.tensor(lengths)),
    )
    weights = torch.tensor(token_weights(lengths, loss.aggregation, SEQ_LEN))
    loss_N, _ = load_policy_loss(loss)(tokens)
    (loss_N * weights[tokens.sequence_N]).sum().backward()
    return gradients(module)


AGGREGATIONS = itertools.cycle(["token", "sequence", "constant"])  # each with some of the policies


@pytest.mark.parametrize(("policy", "aggregation"), [(policy, next(AGGREGATIONS)) for policy in POLICIES])
def test_the_gradient_is_the_formulas_however_the_batch_is_split(policy, aggregation):
    loss = LossConfig(policy=policy, aggregation=aggregation)
    samples = near_policy(random_samples(3), reference_module("llama"), spread=0.0004 if policy == "gspo" else 0.5)
    expected = reference_gradient(samples, loss)
    totals = []
    for micro_batch_tokens in (10_000, 60, 1):
        gradient, metrics = gradient_of(samples, loss, micro_batch_tokens)
        assert_gradients_equal(gradient, expected, rtol=2e-4)
        totals.append([metrics[name] for name in ("loss/policy", "loss/clipped", "loss/entropy", "guard/mismatch_kl")])
    assert totals[1] == pytest.approx(totals[0], rel=1e-3, abs=1e-5)
    assert totals[2] == pytest.approx(totals[0], rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("policy", POLICIES)
def test_fresh_and_stale_samples_share_a_batch(policy):
    """Their ratios are far apart, and the guard, which judges fresh tokens, has nothing to say about the others."""
    loss, reference = LossConfig(policy=policy), reference_module("llama")
    fresh, stale = near_policy(random_samples(0), reference, 0.0), near_policy(random_samples(1), reference, 3.0)
    samples = [*(replace(sample, version=0) for sample in fresh), *(replace(sample, version=-8) for sample in stale)]
    expected = reference_gradient(samples, loss)
    gradient, metrics = gradient_of(samples, loss, micro_batch_tokens=60)
    assert_gradients_equal(gradient, expected, rtol=2e-4)
    assert metrics["guard/max_logprob_gap"] > 5 and all(math.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize("switched_off", [lambda: torch.set_grad_enabled(False), torch.inference_mode().__enter__])
def test_a_step_learns_though_an_environment_has_switched_gradients_off(switched_off):
    module = policy_module("llama")
    samples = near_policy(random_samples(5)[:2], reference_module("llama"), spread=0.0)
    before = weights(module)

    def step() -> None:
        switched_off()
        trainer(module)(batch_of([replace(sample, version=0) for sample in samples]), 1.0, version=0)

    thread = threading.Thread(target=step)  # the switches are those of a thread
    thread.start()
    thread.join()
    assert any(not torch.equal(a, b) for a, b in zip(before, weights(module), strict=True))


def trainer(module: nn.Module, guard: GuardConfig | None = None) -> TrainStep:
    config = TrainerConfig(optim=OptimConfig(lr=0.01, weight_decay=0.1), guard=guard or GuardConfig())
    return TrainStep(module, MasterAdamW(module, config.optim), config, SEQ_LEN)


def weights(module: nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in module.parameters()]


def shifted(shift: float, num_tokens: int | None, version: int) -> list[Sample]:
    """Agreeing samples, but the sampler's log-probabilities of the first `num_tokens` of each (None: all) are off."""
    samples = near_policy(random_samples(0), reference_module("llama"), spread=0.0)
    moved = []
    for sample in samples:
        trained = [t for t, mask in enumerate(sample.loss_mask_T) if mask][:num_tokens]
        logprobs = tuple(v + shift * (t in trained) for t, v in enumerate(sample.logprobs_T))
        moved.append(replace(sample, logprobs_T=logprobs, version=version))
    return moved


@pytest.mark.parametrize(("shift", "num_tokens", "key"), [(5.5, 1, "max_logprob_gap"), (-0.3, None, "max_mismatch_kl")])
def test_the_guard_stops_the_run_before_the_update_and_names_its_key(shift, num_tokens, key):
    module = policy_module("llama")
    before = weights(module)
    with pytest.raises(StepRefusedError, match=rf"sampler and trainer disagree.*--trainer\.guard\.{key}") as caught:
        trainer(module)(batch_of(shifted(shift, num_tokens, version=4)), 1.0, version=4)
    assert all(map(torch.equal, before, module.parameters()))
    assert caught.value.metrics["guard/max_logprob_gap"] == pytest.approx(abs(shift), abs=1e-3)


def test_a_refused_batch_leaves_no_gradient_behind():
    modules = [policy_module("llama"), policy_module("llama")]
    refused, fresh = (trainer(module) for module in modules)
    with pytest.raises(StepRefusedError):
        refused(batch_of(shifted(5.5, 1, version=4)), 1.0, version=4)
    for step in (refused, fresh):
        step(batch_of(shifted(0.0, None, version=4)), 1.0, version=4)
    assert all(map(torch.equal, weights(modules[0]), weights(modules[1])))


def test_the_guard_lets_agreement_older_samples_and_raised_bounds_pass():
    for samples, guard in (
        (shifted(0.0, None, version=4), None),
        (shifted(1.5, None, version=3), None),  # of other weights: a gap is to be expected
        (shifted(1.5, None, version=4), GuardConfig(max_logprob_gap=2.0, max_mismatch_kl=10.0)),
    ):
        metrics = trainer(policy_module("llama"), guard)(batch_of(samples), 1.0, version=4)
        assert metrics["loss/tokens"] == sum(sum(sample.loss_mask_T) for sample in samples)


def test_the_guard_judges_the_fresh_samples_of_a_mixed_batch():
    wrong, stale = shifted(-0.3, None, version=4), shifted(0.0, None, version=3) * 4
    with pytest.raises(StepRefusedError, match="mismatch_kl"):
        trainer(policy_module("llama"))(batch_of([*wrong, *stale]), 1.0, version=4)


def test_metrics_of_a_known_gap():
    metrics = trainer(policy_module("llama"))(batch_of(shifted(-0.1, None, version=-1)), 1.0, version=0)
    for name in metrics:
        lookup(name)
    assert metrics["guard/max_logprob_gap"] == pytest.approx(0.1, abs=1e-4)
    assert metrics["guard/mean_logprob_gap"] == pytest.approx(0.1, abs=1e-4)
    assert metrics["guard/mismatch_kl"] == pytest.approx(math.exp(0.1) - 0.1 - 1, abs=1e-5)
    assert metrics["loss/ratio_max"] == pytest.approx(math.exp(0.1), rel=1e-4)
    assert metrics["loss/clipped"] == 0.0
    assert metrics["optim/lr"] == 0.01
    assert metrics["optim/skipped"] == 0.0


class Asks:
    """Answers whatever the policy says with another question, twice."""

    def __init__(self) -> None:
        self._left = 2

    async def start(self):
        return [{"role": "user", "content": "first question"}]

    async def step(self, reply):
        self._left -= 1
        return Turn(done=self._left == 0, messages=[{"role": "user", "content": "and then?"}], reward=1.0)


@pytest.mark.parametrize("family", [*FAMILIES, "granite", "smollm3"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_fresh_conversations_of_the_engine_have_a_ratio_of_one(family, temperature):
    module, chat = policy_module(family), ChatFormat(tiny_tokenizer())
    engine = Engine(module, chat.stop_ids, num_slots=4, capacity=256)
    limits = LimitsConfig(max_turns=5, episode_timeout_s=5.0)
    context = RolloutContext(LocalClient(engine, chat.text), chat, limits, 256, num_concurrent=4)
    taskset, params = OneTask(lambda task: Asks()), SamplingParams(20, temperature)
    specs = [EpisodeSpec(taskset, Task("one", {}), replace(params, seed=10 * n)) for n in range(6)]
    rollouts = [rollout for (rollout,) in run_episodes(run_groups([[spec] for spec in specs], context))]
    samples = [
        Sample(r.token_ids_T, r.loss_mask_T, r.logprobs_T, (1.0,) * len(r.token_ids_T), version=0) for r in rollouts
    ]
    assert {(r.failure, r.metrics["turns"]) for r in rollouts} == {("", 2)}
    metrics = trainer(module)(batch_of(samples, temperature), 1.0, version=0)
    assert metrics["guard/max_logprob_gap"] < 1e-4
    assert metrics["loss/ratio_max"] == pytest.approx(1.0, abs=1e-4)
    assert metrics["loss/tokens"] == sum(r.num_sampled for r in rollouts) > 40


def forbid(module: nn.Module, token: int) -> None:
    """Make a token impossible, as a mask on the vocabulary would: its log-probability is minus infinity."""
    head = module.get_output_embeddings()
    head.bias = nn.Parameter(torch.zeros(head.out_features), requires_grad=False)
    with torch.no_grad():
        head.bias[token] = -math.inf


def test_a_token_without_a_finite_logprob_is_masked_and_counted():
    samples = near_policy(random_samples(0), reference_module("llama"), spread=0.0)
    victim = max(samples, key=lambda sample: sum(sample.loss_mask_T))
    last = max(t for t, mask in enumerate(victim.loss_mask_T) if mask)
    token = victim.token_ids_T[last]
    hit = sum(
        mask and t == token
        for sample in samples
        for t, mask in zip(sample.token_ids_T, sample.loss_mask_T, strict=True)
    )
    module = policy_module("llama")
    forbid(module, token)
    before = weights(module)
    metrics = trainer(module)(batch_of(samples), 1.0, version=0)
    assert metrics["loss/nonfinite_tokens"] == hit >= 1
    assert all(math.isfinite(value) for value in metrics.values())
    assert not all(map(torch.equal, before, module.parameters()))


@pytest.mark.parametrize("version", [4, 3])
def test_a_policy_of_nans_is_not_taken_for_one_that_agrees(version):
    module = policy_module("llama")
    with torch.no_grad():
        next(module.parameters()).fill_(math.nan)
    samples = shifted(0.0, None, version=4)
    num = sum(sum(sample.loss_mask_T) for sample in samples)
    with pytest.raises(StepRefusedError, match=rf"{num} of {num} trained tokens have no finite.*--resume") as caught:
        trainer(module)(batch_of(samples), 1.0, version)
    assert caught.value.metrics["loss/nonfinite_tokens"] == caught.value.metrics["loss/tokens"] == num


@pytest.mark.parametrize("logprob", [math.nan, -math.inf])
def test_a_token_whose_sampler_logprob_is_not_finite_counts_for_nothing(logprob):
    samples = near_policy(random_samples(0), reference_module("llama"), spread=0.1)
    last = max(t for t, mask in enumerate(samples[0].loss_mask_T) if mask)

    def with_last(values: tuple[float, ...], value: float) -> tuple[float, ...]:
        return (*values[:last], value, *values[last + 1 :])

    broken = replace(samples[0], logprobs_T=with_last(samples[0].logprobs_T, logprob))
    worthless = replace(samples[0], advantages_T=with_last(samples[0].advantages_T, 0.0))
    gradient, metrics = gradient_of([broken, *samples[1:]], LossConfig(), 10_000)
    expected, _ = gradient_of([worthless, *samples[1:]], LossConfig(), 10_000)
    assert_gradients_equal(gradient, expected)
    assert metrics["loss/nonfinite_tokens"] == 1
    assert all(math.isfinite(value) for value in metrics.values())
