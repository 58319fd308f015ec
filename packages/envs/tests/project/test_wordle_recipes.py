"""The recipes of `examples/wordle/`: they resolve, and take a step on tiny random models of the same architecture."""

import json
from pathlib import Path

import pytest

from slimrl.cli import run
from slimrl.config.data import ExpertDataConfig
from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig, SFTConfig
from slimrl.monitor.rollouts import read_rollouts
from slimrl.monitor.sinks import read_metrics
from tests.tiny import tiny_model_dir

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[4]
RECIPES = {"rl.toml": "rl", "gpu.toml": "rl", "sft.toml": "sft", "eval.toml": "eval"}
ARCHITECTURES = {"rl.toml": "llama", "gpu.toml": "qwen3"}


def argv(recipe: str, **settings: object) -> list[str]:
    """The recipe's command; letters are tokens of a tiny model, so that games are longer."""
    always = {"model.dtype": "float32", "model.num_threads": 1, "seq_len": 2048}
    flags = [text for name, value in (always | settings).items() for text in (f"--{name}", str(value))]
    return [RECIPES[recipe], "@", str(ROOT / "examples" / "wordle" / recipe), *flags]


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_resolves(recipe: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([RECIPES[recipe], "@", str(ROOT / "examples" / "wordle" / recipe), "--dry-run"]) == 0
    assert 'id = "wordle"' in capsys.readouterr().out


def test_supervised_training_as_a_run_of_its_own_is_the_warm_up_of_the_other() -> None:
    directory = ROOT / "examples" / "wordle"
    trained = load(RLConfig, ["@", str(directory / "rl.toml")], {}).config
    alone = load(SFTConfig, ["@", str(directory / "sft.toml")], {}).config
    assert isinstance(alone.data, ExpertDataConfig) and [alone.data.env] == list(trained.orchestrator.env)
    assert (alone.optim, alone.schedule) == (trained.warmup.optim, trained.warmup.schedule)
    assert (alone.max_steps, alone.batch_size) == (trained.warmup.max_steps, trained.warmup.batch_size)
    assert f"wordle_2/weights/step_{trained.max_steps}\n" in (directory / "README.md").read_text()
    for name in ("sft.toml", "README.md"):
        assert f"wordle_sft/weights/step_{alone.max_steps}" in (directory / name).read_text()


@pytest.mark.parametrize("recipe", ["rl.toml", pytest.param("gpu.toml", marks=pytest.mark.nightly)])
def test_warm_up_and_reinforcement_take_a_step(recipe: str, tmp_path: Path) -> None:
    settings = {
        "model.name": tiny_model_dir(tmp_path, ARCHITECTURES[recipe]),
        "output_dir": tmp_path / "run",
        "max_steps": 1,
        "orchestrator.batch_size": 4,
        "orchestrator.rollouts_per_example": 2,
        "orchestrator.sampling.max_tokens": 8,
        "trainer.loss.type": "reinforce",  # a random model earns nothing: a constant baseline still gives a signal
        "trainer.loss.advantage": "preset",
        "warmup.max_steps": 1,
        "warmup.batch_size": 2,
        "eval.num_examples": 2,
    }
    assert run(argv(recipe, **settings)) == 0
    (step, last) = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert step[1]["loss/tokens"] > 0 and step[1]["optim/grad_norm"] > 0 and step[1]["guard/mismatch_kl"] < 0.01
    assert step[1]["env/guesses"] == 6 and step[1]["env/won"] == 0 and "held_out/won_greedy" in last[1]
    assert len(read_rollouts(tmp_path / "run" / "rollouts" / "step_000000.jsonl")) == 4


@pytest.mark.slow
def test_sft_learns_from_the_solver(tiny_dir: Path, tmp_path: Path) -> None:
    settings = {"model.name": tiny_dir, "output_dir": tmp_path / "run", "max_steps": 2, "batch_size": 2}
    assert run(argv("sft.toml", **settings, val_num_examples=2)) == 0
    assert all(values["sft/tokens"] > 0 for _, values in read_metrics(tmp_path / "run" / "metrics.jsonl")[:2])


def test_eval_compares_with_random_words_and_the_solver(tiny_dir: Path, tmp_path: Path) -> None:
    settings = {"model.name": tiny_dir, "output_dir": tmp_path / "run", "num_examples": 3, "sampling.max_tokens": 32}
    assert run(argv("eval.toml", **settings)) == 0
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    played = results["evaluations"]
    scores = {name: played[name]["scripted"]["scores"] for name in ("random", "expert")}
    assert scores["expert"]["won"]["mean"] == 1.0
    assert scores["expert"]["consistent"]["mean"] == 1.0
    assert scores["random"]["consistent"]["mean"] < 0.5  # it does not look at the marks
