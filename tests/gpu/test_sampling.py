"""The engine on a GPU: a CPU's greedy tokens, and log-probabilities that the trainer computes again."""

import random

import pytest
import torch

from slimrl.config.loss import LossConfig
from slimrl.inference.engine import Engine
from slimrl.inference.scheduler import Request
from slimrl.transport.base import Batch
from slimrl.types import Sample, SamplingParams
from tests.gpu.test_training import CPU, CUDA, module_on, train_step
from tests.tiny import FAMILIES


def completions(engine: Engine, temperature: float) -> list[Request]:
    rng = random.Random(0)
    prompts = [[rng.randrange(3, 300) for _ in range(rng.choice([3, 40, 200]))] for _ in range(12)]
    prompts += [[*prompts[0], 7], prompts[1]]
    params = [SamplingParams(24, temperature=temperature, seed=seed) for seed in range(len(prompts))]
    requests = [engine.submit(*pair, lambda sampled: False) for pair in zip(prompts, params, strict=True)]
    while engine.busy:
        engine.step()
    return requests


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_are_those_of_a_cpu(family):
    here, there = (completions(Engine(module_on(d, family), frozenset(), 6, 320), 0.0) for d in (CPU, CUDA))
    for ours, theirs in zip(there, here, strict=True):
        assert ours.completion_ids == theirs.completion_ids
        assert ours.logprobs == pytest.approx(theirs.logprobs, abs=1e-3)


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-6), (torch.bfloat16, 0.01)])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_trainer_computes_what_the_sampler_logged(family, dtype, most):
    module = module_on(CUDA, family, dtype)
    requests = completions(Engine(module, frozenset(), 6, 320), 1.0)
    samples = []
    for request in requests:
        prompt, sampled = len(request.prompt), len(request.logprobs)
        mask = (*[False] * prompt, *[True] * sampled)
        logprobs = (*[0.0] * prompt, *request.logprobs)
        samples.append(Sample((*request.prompt, *request.completion_ids), mask, logprobs, (1.0,) * len(mask), 0))
    metrics = train_step(module, LossConfig())(Batch(tuple(samples), 1.0), 1.0, version=0)
    assert metrics["guard/mismatch_kl"] < most
