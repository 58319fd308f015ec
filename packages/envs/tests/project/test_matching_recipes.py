"""The recipes of `examples/matching_game/`, self-play and the language model as partner: runs of tiny random models."""

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from slimrl.cli import run
from slimrl.config.data import ExpertDataConfig
from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig, SFTConfig
from slimrl.monitor.rollouts import read_rollouts
from slimrl.monitor.sinks import read_metrics
from tests.io.replying import Answer, Asked, completion, server
from tests.tiny import tiny_model_dir

pytestmark = pytest.mark.slow

RECIPES = Path(__file__).parents[4] / "examples" / "matching_game"
ARCHITECTURES = {"rl.toml": "llama", "gpu.toml": "qwen3"}
FIRST_OF_TRAINING = 3  # of the partner's requests: one asks whether it is there, two are of the evaluation
KEY = "sk-this-is-a-secret-0123456789"


def argv(recipe: str, output_dir: Path, model: Path, **settings: object) -> list[str]:
    """A step of a recipe; letters are tokens of a tiny model, so that games are longer."""
    always = {
        "model.name": model,
        "model.dtype": "float32",
        "model.num_threads": 1,
        "output_dir": output_dir,
        "seq_len": 6000,
        "max_steps": 1,
        "orchestrator.batch_size": 4,
        "orchestrator.rollouts_per_example": 2,
        "orchestrator.sampling.max_tokens": 6,
        "inference.max_slots": 4,
        "trainer.micro_batch_tokens": 16384,
        "trainer.loss.advantage": "reinforce",  # a random model earns nothing: a constant baseline still gives a signal
        "orchestrator.env.0.args.n": 3,
        "orchestrator.env.0.args.num_train": 8,
        "orchestrator.env.0.args.num_test": 4,
        "warmup.max_steps": 0,
        "eval.num_examples": 1,
    }
    flags = [text for name, value in (always | settings).items() for text in (f"--{name}", str(value))]
    return ["rl", "@", str(RECIPES / recipe), *flags]


def steps_of(output_dir: Path) -> list[dict[str, float]]:
    return [metrics for _, metrics in read_metrics(output_dir / "metrics.jsonl")]


RECIPE_COMMANDS = {"rl.toml": "rl", "sft.toml": "sft", "gpu.toml": "rl", "eval.toml": "eval"}


@pytest.mark.parametrize(("recipe", "command"), RECIPE_COMMANDS.items())
def test_a_recipe_says_what_would_run(command: str, recipe: str, capsys: pytest.CaptureFixture[str]):
    assert run([command, "@", str(RECIPES / recipe), "--dry-run"]) == 0
    assert 'id = "matching-game"' in capsys.readouterr().out


def test_supervised_training_as_a_run_of_its_own_is_the_warm_up_of_the_other():
    trained = load(RLConfig, ["@", str(RECIPES / "rl.toml")], {}).config
    alone = load(SFTConfig, ["@", str(RECIPES / "sft.toml")], {}).config
    assert isinstance(alone.data, ExpertDataConfig) and [alone.data.env] == list(trained.orchestrator.env)
    assert (alone.optim, alone.schedule) == (trained.warmup.optim, trained.warmup.schedule)
    assert (alone.max_steps, alone.batch_size) == (trained.warmup.max_steps, trained.warmup.batch_size)
    assert (alone.seq_len, alone.model) == (trained.seq_len, trained.model)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["rl.toml", pytest.param("gpu.toml", marks=pytest.mark.nightly)])
def test_a_step_of_a_recipe(recipe: str, tmp_path: Path):
    settings = {"warmup.max_steps": 1, "warmup.batch_size": 2, "eval.num_examples": 2}
    model = tiny_model_dir(tmp_path, ARCHITECTURES[recipe])
    assert run(argv(recipe, tmp_path / "run", model, **settings)) == 0
    step, last = steps_of(tmp_path / "run")
    assert step["optim/grad_norm"] > 0 and step["guard/mismatch_kl"] < 0.01
    told = {"agreed", "score", "optimum", "own_view", "proposals", "valid_proposals", "errors", "messages", "questions"}
    assert {f"env/{name}" for name in told} <= step.keys()
    assert step["env/errors"] > 0 and "held_out/agreed_greedy" in last


def test_a_step_of_self_play_accounts_for_both_sides(tiny_dir: Path, tmp_path: Path):
    """A random model as player 1 says nothing legal, so player 2 is never at turn: dropped, with the reason."""
    settings = {"orchestrator.env.0.args.partner": "self", "orchestrator.rollouts_per_example": 4}
    assert run(argv("rl.toml", tmp_path / "run", tiny_dir, **settings)) == 0
    (step, *_) = steps_of(tmp_path / "run")
    assert step["drop/partner_left"] > 0
    dropped = sum(value for name, value in step.items() if name.startswith("drop/"))
    assert step["rollout/num"] == step["rollout/num_trained"] + dropped
    records = read_rollouts(tmp_path / "run" / "rollouts" / "step_000000.jsonl")
    assert {record.rollout.role for record in records} == {"player 1", "player 2"}


@pytest.mark.slow
def test_the_key_of_the_partner_is_nowhere_in_what_a_run_writes(
    tiny_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    """Not even where the server repeats it, in what it says and in its errors."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    number = count()

    def answer(asked: Asked) -> Answer:
        if next(number) == FIRST_OF_TRAINING + 1:
            return Answer(401, {"error": f"Incorrect API key provided: {KEY}"})
        return completion(f"[message] Your key is {KEY}. Which paper do you mean?")

    with server(answer) as (url, asked):
        partner: dict[str, Any] = {"base_url": url, "max_tries": 1, "max_requests": 100}
        args = {"orchestrator.env.0.args.partner": "llm", "orchestrator.env.0.args.role": 2}
        settings = {f"orchestrator.env.0.args.llm.{name}": value for name, value in partner.items()}
        assert run(argv("rl.toml", tmp_path / "run", tiny_dir, **args, **settings)) == 0
    assert len(asked) > 4 and {one.headers["Authorization"] for one in asked} == {f"Bearer {KEY}"}
    (step, *_) = steps_of(tmp_path / "run")
    assert step["drop/partner_error"] > 0 and step["env/partner_replies"] == 1.0
    records = read_rollouts(tmp_path / "run" / "rollouts" / "step_000000.jsonl")
    assert any("Your key is [key]" in record.text for record in records)
    assert any("[key]" in record.rollout.failure_detail for record in records)
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert (tmp_path / "run" / "config.toml") in files and len(files) > 5
    assert [path for path in files if KEY[:12].encode() in path.read_bytes()] == []
    written = capfd.readouterr()
    assert KEY[:12] not in written.out + written.err


def test_a_run_stops_when_the_budget_of_the_partner_is_used_up(
    tiny_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with server(lambda asked: completion("[message] Which paper do you mean?")) as (url, asked):
        llm = json.dumps({"base_url": url, "max_requests": 3})
        args = {"orchestrator.env.0.args.partner": "llm", "orchestrator.env.0.args.role": 2}
        more = {"orchestrator.env.0.args.llm": llm}
        assert run(argv("rl.toml", tmp_path / "run", tiny_dir, **args, **more)) == 2
    assert len(asked) == 3
    told = " ".join(capsys.readouterr().err.split())
    assert "has used up its budget: 3 requests" in told and "`max_requests` = 3" in told
