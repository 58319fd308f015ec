"""Where there are no kernels, a policy samples and learns the same by PyTorch's operations."""

import pytest
import torch
from torch import Tensor

from slimrl.config.train import OptimConfig
from slimrl.inference.engine import Engine
from slimrl.models.forward.fused import can_fuse
from slimrl.models.native import ops
from slimrl.trainer.logprobs import target_logprobs
from slimrl.trainer.optim import MasterAdamW
from slimrl.trainer.packing import pack_samples
from slimrl.types import SamplingParams
from tests.trainer.samples import CPU, policy_module, random_samples

pytestmark = pytest.mark.usefixtures("kernels")


def sampled_and_trained(family: str) -> tuple[list[list[int]], list[float], dict[str, Tensor]]:
    """The sampled tokens, their log-probabilities, and the weights after three updates that make them likelier."""
    module = policy_module(family)
    engine = Engine(module, frozenset(), 3, 64)
    requests = [
        engine.submit(list(range(10, 10 + n)), SamplingParams(12, temperature=n % 3 / 2, seed=n), lambda sampled: False)
        for n in range(1, 9)
    ]
    while engine.busy:
        engine.step()
    optimizer = MasterAdamW(module, OptimConfig(lr=1e-3))
    for _ in range(3):
        for pack in pack_samples(random_samples(0), 100, CPU):
            logprob_N, *_ = target_logprobs(module, pack, temperature=0.9)
            (-logprob_N.sum() / 100).backward()
        optimizer.step(1.0)
    logprobs = [logprob for request in requests for logprob in request.logprobs]
    return [request.completion_ids for request in requests], logprobs, module.state_dict()


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
def test_a_policy_samples_and_learns_the_same(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, logprobs, weights = sampled_and_trained(family)
    before = policy_module(family)
    assert can_fuse(before) == (family != "gemma3")
    monkeypatch.setattr(ops, "available", lambda tensor: False)
    monkeypatch.setattr(ops, "call", forbidden)
    assert not can_fuse(before)
    plain_tokens, plain_logprobs, plain_weights = sampled_and_trained(family)
    assert tokens == plain_tokens
    assert logprobs == pytest.approx(plain_logprobs, abs=1e-4)
    for name, weight in before.state_dict().items():
        torch.testing.assert_close(weights[name], plain_weights[name], rtol=0, atol=1e-4, msg=name)
        assert (plain_weights[name] - weight).abs().max() > 1e-3  # it learnt


def forbidden(name: str, *arguments: object) -> None:
    raise AssertionError(f"{name} was called")
