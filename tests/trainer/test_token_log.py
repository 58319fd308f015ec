"""The numbers of each trained token, as a viewer reads them: those of the loss, in the order of the samples."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from slimrl.config.loss import LossConfig
from slimrl.config.train import OptimConfig, TrainerConfig
from slimrl.io.run_dir import RunDir
from slimrl.trainer.optim import MasterAdamW
from slimrl.trainer.parallel import ALONE
from slimrl.trainer.step import StepRefusedError, TrainStep
from slimrl.trainer.token_log import TokenLog
from slimrl.transport.base import Batch
from slimrl.types import Sample
from tests.trainer.samples import near_policy, policy_module, random_samples, reference_logprobs

SEQ_LEN = 100


def placed(samples: list[Sample]) -> tuple[Sample, ...]:
    """Samples that stand in every second line of a file."""
    return tuple(replace(sample, row=2 * number) for number, sample in enumerate(samples))


def step_of(module: torch.nn.Module, **config) -> TrainStep:
    trainer = TrainerConfig(loss=LossConfig(type="grpo"), micro_batch_tokens=60, **config)
    return TrainStep(module, MasterAdamW(module, OptimConfig()), trainer, SEQ_LEN)


def test_numbers_are_those_of_a_forward_of_each_sample_alone(tmp_path):
    module = policy_module("llama")
    samples = placed(near_policy(random_samples(3), module, spread=0.3))
    expected = [new.detach() for new in reference_logprobs(module, samples)]
    step_of(module)(Batch(samples, 1.0), 1.0, 7, TokenLog(tmp_path, ALONE))
    found = np.load(RunDir(tmp_path).tokens_of(7))
    assert found["rows"].tolist() == [sample.row for sample in samples]
    assert found["lengths"].tolist() == [sum(sample.loss_mask_T) for sample in samples]
    old = torch.tensor([lp for s in samples for lp, mask in zip(s.logprobs_T, s.loss_mask_T, strict=True) if mask])
    advantage = [a for s in samples for a, mask in zip(s.advantages_T, s.loss_mask_T, strict=True) if mask]
    assert found["log_ratio"].tolist() == pytest.approx((torch.cat(expected) - old).tolist(), abs=2e-3)
    assert found["advantage"].tolist() == pytest.approx(advantage, rel=1e-3)
    assert (found["entropy"] > 0).all() and len(found["entropy"]) == len(advantage)


def test_a_log_changes_no_bit_of_the_step(tmp_path):
    modules, metrics = [], []
    for log in (None, TokenLog(tmp_path, ALONE)):
        module = policy_module("llama")
        metrics.append(step_of(module)(Batch(placed(random_samples(0)), 1.0), 1.0, -5, log))
        modules.append(module)
    assert metrics[0] == metrics[1]
    for one, other in zip(modules[0].parameters(), modules[1].parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_token_without_a_finite_number_is_nan(tmp_path):
    module = policy_module("llama")
    first, *others = near_policy(random_samples(3), module, spread=0.0)
    t = first.loss_mask_T.index(True)
    odd = replace(first, logprobs_T=(*first.logprobs_T[:t], float("-inf"), *first.logprobs_T[t + 1 :]))
    step_of(module)(Batch(placed([*others, *others, odd]), 1.0), 1.0, 0, TokenLog(tmp_path, ALONE))
    found = np.load(RunDir(tmp_path).tokens_of(0))
    at = sum(found["lengths"][:-1].tolist())
    assert np.isnan(found["log_ratio"]).nonzero()[0].tolist() == [at]


def test_a_refused_step_leaves_its_numbers(tmp_path):
    module = policy_module("llama")
    samples = placed([replace(sample, version=4) for sample in random_samples(0)])  # far from the policy
    with pytest.raises(StepRefusedError):
        step_of(module)(Batch(samples, 1.0), 1.0, 4, TokenLog(tmp_path, ALONE))
    assert np.abs(np.load(RunDir(tmp_path).tokens_of(4))["log_ratio"]).max() > 0.5


def test_samples_of_no_file_are_not_written(tmp_path):
    step_of(policy_module("llama"))(Batch(tuple(random_samples(0)), 1.0), 1.0, -5, TokenLog(tmp_path, ALONE))
    assert not list(tmp_path.iterdir())
