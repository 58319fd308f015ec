"""The recipes of `experiments/context_distill/`: they take a step on tiny random models."""

import math
from pathlib import Path

import pytest

from slimrl.cli import run
from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig
from slimrl.monitor.sinks import read_metrics
from tests.tiny import tiny_model_dir

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DIRECTORY = ROOT / "experiments" / "context_distill"
ARCHITECTURES = {"rl.toml": "llama", "gpu.toml": "qwen3"}


@pytest.fixture(autouse=True)
def from_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # the recipes name the environment's file from there


def test_the_weights_that_training_leaves_are_evaluated() -> None:
    trained = load(RLConfig, ["@", str(DIRECTORY / "rl.toml")], {}).config
    assert f"weights/step_{trained.max_steps}\n" in (DIRECTORY / "eval.toml").read_text()


@pytest.mark.parametrize("recipe", ARCHITECTURES)
def test_a_step_is_taken_towards_the_teacher(recipe: str, tmp_path: Path) -> None:
    settings = {
        "model.name": tiny_model_dir(tmp_path, ARCHITECTURES[recipe]),
        "model.dtype": "float32",
        "model.device": "cpu",
        "model.num_threads": 1,
        "output_dir": tmp_path / "run",
        "max_steps": 1,
        "seq_len": 512,
        "teacher.seq_len": 2048,
        "orchestrator.batch_size": 8,
        "orchestrator.rollouts_per_example": 4,
        "warmup.max_steps": 0,
        "eval.num_examples": 2,
    }
    flags = [text for name, value in settings.items() for text in (f"--{name}", str(value))]
    assert run(["rl", "@", str(DIRECTORY / recipe), *flags]) == 0
    (step, _) = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert step[1]["loss/tokens"] > 0 and step[1]["optim/grad_norm"] > 0 and step[1]["guard/mismatch_kl"] < 0.01
    assert math.isfinite(step[1]["distill/reverse_kl"]) and step[1]["distill/reverse_kl"] != 0
