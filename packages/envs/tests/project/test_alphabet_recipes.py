"""The recipes of alphabet sort, each on a tiny random model of the architecture that it names."""

import json
from pathlib import Path

import pytest

from slimrl.cli import run
from slimrl.config.reading.load import load
from slimrl.config.run import COMMANDS, RLConfig
from slimrl.monitor.rollouts import read_rollouts
from slimrl.monitor.sinks import read_metrics
from tests.tiny import tiny_model_dir

ROOT = Path(__file__).parents[4]
RECIPES = "examples/alphabet_sort"
ARCHITECTURES = {"rl.toml": "llama", "gpu.toml": "qwen3"}


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize(("command", "recipe"), [("rl", "rl.toml"), ("rl", "gpu.toml"), ("eval", "eval.toml")])
def test_a_recipe_says_what_would_run(command: str, recipe: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "@", f"{RECIPES}/{recipe}", "--dry-run"]) == 0
    assert "alphabet-sort" in capsys.readouterr().out


@pytest.mark.parametrize("recipe", ARCHITECTURES)
def test_a_recipe_trains_adapters_alone_and_without_demonstrations(recipe: str) -> None:
    config = load(RLConfig, ["@", f"{RECIPES}/{recipe}"], {}).config
    assert config.model.lora.rank > 0 and config.warmup.max_steps == 0
    (env,) = config.orchestrator.env
    assert env.args["max_turns"] <= config.orchestrator.max_turns


def test_an_evaluation_has_a_higher_power_than_training() -> None:
    for recipe, evaluation in (("rl.toml", "eval.toml"), ("gpu.toml", "gpu_eval.toml")):
        evaluated = load(COMMANDS["eval"], ["@", f"{RECIPES}/{evaluation}"], {}).config
        trained = load(RLConfig, ["@", f"{RECIPES}/{recipe}"], {}).config
        assert evaluated.env[0].args == {**trained.orchestrator.env[0].args, "power": 8}


@pytest.mark.nightly
@pytest.mark.parametrize("recipe", ["rl.toml", "gpu.toml"])
def test_a_step_of_a_recipe(recipe: str, tmp_path: Path) -> None:
    settings = {
        "model.name": tiny_model_dir(tmp_path, ARCHITECTURES[recipe]),
        "model.device": "cpu",
        "model.dtype": "float32",
        "model.num_threads": 1,
        "max_steps": 1,
        "seq_len": 4096,  # a tiny model has a token for almost every letter
        "orchestrator.batch_size": 4,
        "orchestrator.rollouts_per_example": 2,
        "orchestrator.sampling.max_tokens": 6,
        "inference.max_slots": 4,
        "trainer.loss.type": "reinforce",  # a random model earns nothing: its baseline still gives a signal
        "trainer.loss.advantage": "preset",
        "eval.num_examples": 2,
        "output_dir": tmp_path / "run",
    }
    flags = [text for key, value in settings.items() for text in (f"--{key}", str(value))]
    assert run(["rl", "@", f"{RECIPES}/{recipe}", *flags]) == 0
    step, after = (metrics for _, metrics in read_metrics(tmp_path / "run" / "metrics.jsonl"))
    assert step["optim/grad_norm"] > 0 and step["guard/mismatch_kl"] < 1e-3
    assert {"env/similarity", "env/exact", "env/tagged", "env/names", "env/marks"} <= step.keys()
    assert "held_out/similarity_greedy" in after
    records = read_rollouts(tmp_path / "run" / "rollouts" / "step_000000.jsonl")
    for rollout in (record.rollout for record in records):
        own = rollout.messages[-2 * len(rollout.turn_rewards) :]
        assert [message["role"] for message in own] == ["user", "assistant"] * len(rollout.turn_rewards)
        assert own[0]["content"].startswith("Sort these names by ")
    assert (tmp_path / "run" / "weights" / "step_1" / "adapter").is_dir()
    assert [stage["name"] for stage in json.loads((tmp_path / "run" / "summary.json").read_text())["stages"]] == [
        "before RL",
        "after RL",
    ]
