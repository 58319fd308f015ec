"""The comparisons of algorithms: their arithmetic, their tables, and stale weights that come back to the last bit."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks.harness import comparison
from benchmarks.learning import algorithms, staleness
from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig
from slimrl.config.train import OptimConfig
from slimrl.monitor.sinks import read_metrics
from slimrl.trainer.optim import MasterAdamW
from slimrl.transport.base import Batch
from slimrl.types import Sample

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
REVERSE_TEXT = str(ROOT / "examples" / "reverse_text" / "rl.toml")
TINY = ["--orchestrator.batch_size", "8", "--orchestrator.rollouts_per_example", "4", "--seq_len", "512"]


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


def test_a_batch_is_collected_with_old_weights_and_the_present_ones_are_published_after_it(monkeypatch) -> None:
    module, published, found = nn.Linear(2, 2), [], []
    here = staleness.SamplingHere
    monkeypatch.setattr(here, "__init__", lambda self, parts, distillation: None)
    sample = Sample((1, 2), (False, True), (0.0, -0.5), (0.0, 1.0), version=9)
    monkeypatch.setattr(here, "receive", lambda self, step: found.append(module.bias.tolist()) or Batch((sample,), 1.0))
    monkeypatch.setattr(here, "publish", lambda self, version: published.append((version, module.bias.tolist())))
    stale = staleness.Stale(SimpleNamespace(policy=SimpleNamespace(module=module)), behind=1)
    for step in range(3):
        with torch.no_grad():
            module.bias.fill_(step)
        assert stale.receive(step).samples[0].version == max(0, step - 1)
        assert module.bias.tolist() == [step, step]
    assert found == [[0, 0], [0, 0], [1, 1]]
    assert published == [(0, [0, 0]), (0, [0, 0]), (1, [0, 0]), (1, [1, 1]), (2, [1, 1]), (2, [2, 2])]


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


def test_losses_share_fresh_runs_where_every_ratio_is_1_and_nowhere_else() -> None:
    assert [(name, algorithm.name) for name, algorithm in staleness.losses_of("float32", 0)] == [
        ("aipo", "aipo"),
        ("grpo", "grpo"),
        ("dapo", "dapo"),
        ("gspo", "grpo"),
        ("cispo", "dapo"),
        ("rloo", "rloo"),
        ("rloo weighed", "rloo"),
    ]
    for dtype, behind in (("float32", 2), ("bfloat16", 0), ("bfloat16", 8)):
        found = staleness.losses_of(dtype, behind)
        assert all(name == algorithm.name for name, algorithm in found)
        assert len(found) == (7 if dtype == "float32" else 8)


def test_algorithms_are_compared_and_finished_runs_not_repeated(tiny_dir: Path, tmp_path: Path) -> None:
    output, picture, runs = tmp_path / "algorithms.json", tmp_path / "curves.png", tmp_path / "runs"
    command = [sys.executable, "-m", "benchmarks.learning.algorithms", "--weights", str(tiny_dir), "--dtype", "float32"]
    command += ["--steps", "2", "--examples", "3", "--seeds", "0", "--algorithms", "reinforce", "ppo with gae"]
    command += ["--runs", str(runs), "--output", str(output), "--picture", str(picture), "--more", *TINY]
    first = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert first.returncode == 0, first.stderr
    content: dict[str, Any] = json.loads(output.read_text())
    assert content["summary"].keys() == {"reinforce", "ppo with gae"}
    (run,) = content["summary"]["reinforce"]["runs"]
    assert len(run["curve"]) == 2 and run["tokens_trained"] == run["tokens_sampled"] > 0
    assert str(tmp_path) not in output.read_text()
    assert "| reinforce | 0.0" in first.stdout and "| clipped |" in first.stdout and picture.stat().st_size > 1000
    assert not [*runs.glob("*/weights"), *runs.glob("*/checkpoints")]
    other = subprocess.run([*command, "--trainer.optim.beta1", "0.8"], capture_output=True, text=True, cwd=ROOT)
    assert other.returncode == 1 and "was made with other settings (trainer)" in other.stderr
    again = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert again.returncode == 0, again.stderr
    assert "training" not in again.stdout and json.loads(output.read_text())["summary"] == content["summary"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--trainer.loss.kl_beta", "0.1"], "trainer.loss.kl_beta = 0.1 cannot act"),
        (["--trainer.loss.advantage", "gae"], 'trainer.loss.advantage = "gae" cannot act'),
        (["--teacher.type", "model", "--teacher.name", "other"], "a `[teacher]` cannot act"),
        (["--model.lora.rank", "8"], "model.lora.rank = 8 cannot act"),
    ],
)
def test_what_stale_runs_lack_is_refused(more: list[str], said: str) -> None:
    config = load(RLConfig, ["@", REVERSE_TEXT, *more], {}).config
    with pytest.raises(SystemExit) as refused:
        staleness.refuse_what_stale_runs_lack(config)
    assert said in str(refused.value.code) and "`--more`" in str(refused.value.code)


def test_the_recipe_itself_can_be_stale() -> None:
    staleness.refuse_what_stale_runs_lack(load(RLConfig, ["@", REVERSE_TEXT], {}).config)


@pytest.mark.slow
def test_stale_rollouts_differ_from_the_policy_that_they_train(tiny_dir: Path, tmp_path: Path) -> None:
    settings = {
        "model.name": tiny_dir,
        "model.dtype": "float32",
        "max_steps": 3,
        "warmup.max_steps": 0,
        "eval.num_examples": 2,
        "trainer.loss.type": "reinforce",
        "trainer.optim.lr": 0.01,
        "output_dir": tmp_path / "run",
    }
    argv = ["@", REVERSE_TEXT, *comparison.flags(settings), *TINY]
    staleness.run_stale(load(RLConfig, argv, {}), behind=2)
    gaps = [
        line["guard/mean_logprob_gap"]
        for _, line in read_metrics(tmp_path / "run" / "metrics.jsonl")
        if "loss/policy" in line
    ]
    assert len(gaps) == 3
    assert gaps[0] < 1e-4 < gaps[1] < gaps[2]
    assert (tmp_path / "run" / "summary.json").exists()
