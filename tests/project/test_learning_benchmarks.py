"""The comparisons of algorithms: their arithmetic, their tables, and stale weights that come back to the last bit."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from benchmarks.harness import comparison
from benchmarks.learning import algorithms, staleness
from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig
from slimrl.config.train import OptimConfig
from slimrl.trainer.optim import MasterAdamW

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
REVERSE_TEXT = str(ROOT / "examples" / "reverse_text" / "rl.toml")


def bits(module: nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in module.parameters()]


def update(module: nn.Module, optimizer: MasterAdamW, seed: int) -> None:
    inputs = torch.randn(4, 6, generator=torch.Generator().manual_seed(seed)).bfloat16()
    module(inputs).float().square().sum().backward()
    optimizer.step(1.0)


def test_past_weights_are_put_in_and_the_present_ones_put_back_to_the_last_bit() -> None:
    swapped, untouched = (nn.Linear(6, 5, dtype=torch.bfloat16) for _ in range(2))
    untouched.load_state_dict(swapped.state_dict())
    past = staleness.PastWeights(swapped, behind=2)
    optimizers = [MasterAdamW(module, OptimConfig(lr=1e-3)) for module in (swapped, untouched)]
    seen = []
    for version in range(6):
        seen.append(bits(swapped))
        past.remember(version)
        assert past.put_oldest() == max(0, version - 2)
        assert all(map(torch.equal, bits(swapped), seen[max(0, version - 2)]))
        assert past.put_newest() == version
        assert all(map(torch.equal, bits(swapped), seen[version]))
        for module, optimizer in zip((swapped, untouched), optimizers, strict=True):
            update(module, optimizer, seed=version)
    assert all(map(torch.equal, bits(swapped), bits(untouched)))
    assert not any(map(torch.equal, seen[0], seen[5]))


def test_a_threshold_is_reached_when_the_mean_of_five_steps_is_there() -> None:
    steps_to = comparison.steps_to
    assert steps_to([0.5, 0.5, 0.5, 0.5, 1.0, 1.0], 0.6) == 5
    assert steps_to([0.5] * 4 + [1.0], 0.61) is None
    assert steps_to([1.0] * 4, 0.5) is None


def test_algorithms_are_all_presets_and_the_value_head() -> None:
    for algorithm in algorithms.ALGORITHMS:
        flags = comparison.flags(dict(algorithm.settings))
        loss = load(RLConfig, ["@", REVERSE_TEXT, *flags], {}).config.trainer.loss
        assert loss.type == algorithm.name.partition(" ")[0].removesuffix(",")
        assert loss.resolve().has_critic == (algorithm.name == "ppo with gae")
    arguments = SimpleNamespace(steps=1, dtype="bfloat16", lr=1e-5, examples=1)
    exact = next(algorithm for algorithm in algorithms.ALGORITHMS if algorithm.name == "gspo, float32")
    assert exact.slug == "gspo_float32"
    assert comparison.run_settings(exact, Path("w"), 0, arguments)["model.dtype"] == "float32"
    for algorithm in staleness.LOSSES:
        load(RLConfig, ["@", REVERSE_TEXT, *comparison.flags(dict(algorithm.settings))], {})
