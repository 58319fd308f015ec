"""The recipes of these environments: they resolve, and take a step on tiny random models of the architectures that they
name. Besides, self-play and the language model as partner.
"""

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

EXAMPLES = Path(__file__).parents[4] / "examples"
COMMAND_OF = {"rl.toml": "rl", "gpu.toml": "rl", "sft.toml": "sft", "eval.toml": "eval"}
ARCHITECTURES = {"rl.toml": "llama", "gpu.toml": "qwen3"}
# A random model earns nothing: a constant baseline still gives a signal. Letters are tokens of a tiny model.
CONSTANT = {"trainer.loss.type": "reinforce", "trainer.loss.advantage": "preset"}
SHORT = {"warmup.max_steps": 0, "eval.num_examples": 1}
WARM_UP = {"warmup.max_steps": 1, "warmup.batch_size": 2}
GAME = {
    "seq_len": 6000,
    "orchestrator.sampling.max_tokens": 6,
    "trainer.micro_batch_tokens": 16384,
    "trainer.loss.advantage": "reinforce",
    "orchestrator.env.0.args.n": 3,
    "orchestrator.env.0.args.num_train": 8,
    "orchestrator.env.0.args.num_test": 4,
}
SETTINGS: dict[str, dict[str, object]] = {
    "alphabet_sort": {"seq_len": 4096, "orchestrator.sampling.max_tokens": 6, **CONSTANT},
    "wordle": {"seq_len": 2048, "orchestrator.sampling.max_tokens": 8, **CONSTANT, **WARM_UP},
    "matching_game": {**GAME, **WARM_UP},
}
METRICS = {
    "alphabet_sort": "similarity exact tagged names marks",
    "wordle": "won guesses valid tagged",
    "matching_game": "agreed score optimum own_view proposals valid_proposals errors messages questions",
}
HELD_OUT = {"alphabet_sort": "similarity", "wordle": "won", "matching_game": "agreed"}
FIRST_OF_TRAINING = 3  # of the partner's requests: one asks whether it is there, two are of the evaluation
KEY = "sk-this-is-a-secret-0123456789"


def argv(example: str, recipe: str, **settings: object) -> list[str]:
    flags = [text for name, value in settings.items() for text in (f"--{name}", str(value))]
    return [COMMAND_OF[recipe], "@", str(EXAMPLES / example / recipe), *flags]


def step_of(example: str, recipe: str, output_dir: Path, model: Path, **settings: object) -> list[str]:
    """The command for one step of a recipe."""
    always = {
        "model.name": model,
        "model.device": "cpu",
        "model.dtype": "float32",
        "model.num_threads": 1,
        "output_dir": output_dir,
        "max_steps": 1,
        "orchestrator.batch_size": 4,
        "orchestrator.rollouts_per_example": 2,
        "inference.max_slots": 4,
        "eval.num_examples": 2,
    }
    return argv(example, recipe, **(always | SETTINGS[example] | settings))


def steps_of(output_dir: Path) -> list[dict[str, float]]:
    return [metrics for _, metrics in read_metrics(output_dir / "metrics.jsonl")]


@pytest.mark.parametrize("example", SETTINGS)
@pytest.mark.parametrize("recipe", ["rl.toml", pytest.param("gpu.toml", marks=pytest.mark.nightly)])
def test_a_step_of_a_recipe(example: str, recipe: str, tmp_path: Path) -> None:
    model = tiny_model_dir(tmp_path, ARCHITECTURES[recipe])
    assert run(step_of(example, recipe, tmp_path / "run", model)) == 0
    step, last = steps_of(tmp_path / "run")
    assert step["optim/grad_norm"] > 0 and step["guard/mismatch_kl"] < 0.01 and step["loss/tokens"] > 0
    assert {f"env/{name}" for name in METRICS[example].split()} <= step.keys()
    assert f"held_out/{HELD_OUT[example]}_greedy" in last
    assert len(read_rollouts(tmp_path / "run" / "rollouts" / "step_000000.jsonl")) == 4
    stages = [stage["name"] for stage in json.loads((tmp_path / "run" / "summary.json").read_text())["stages"]]
    assert stages[-1] == "after RL" and ("warm-up" in " ".join(stages)) == ("warmup.max_steps" in SETTINGS[example])


@pytest.mark.parametrize("example", ["wordle", "matching_game"])
def test_supervised_training_as_a_run_of_its_own_is_the_warm_up_of_the_other(example: str) -> None:
    trained = load(RLConfig, ["@", str(EXAMPLES / example / "rl.toml")], {}).config
    alone = load(SFTConfig, ["@", str(EXAMPLES / example / "sft.toml")], {}).config
    assert isinstance(alone.data, ExpertDataConfig) and [alone.data.env] == list(trained.orchestrator.env)
    assert (alone.optim, alone.schedule) == (trained.warmup.optim, trained.warmup.schedule)
    assert (alone.max_steps, alone.batch_size) == (trained.warmup.max_steps, trained.warmup.batch_size)
    assert (alone.seq_len, alone.model) == (trained.seq_len, trained.model)
    if example == "wordle":
        readme, recipe = ((EXAMPLES / example / name).read_text() for name in ("README.md", "sft.toml"))
        assert f"wordle_2/weights/step_{trained.max_steps}\n" in readme
        assert all(f"wordle_sft/weights/step_{alone.max_steps}" in text for text in (readme, recipe))


def test_an_evaluation_of_wordle_compares_with_random_words_and_the_solver(tiny_dir: Path, tmp_path: Path) -> None:
    small = {"model.name": tiny_dir, "output_dir": tmp_path / "run", "model.dtype": "float32", "seq_len": 2048}
    assert run(argv("wordle", "eval.toml", **small, **{"num_examples": 3, "sampling.max_tokens": 32})) == 0
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    played = results["evaluations"]
    scores = {name: played[name]["scripted"]["scores"] for name in ("random", "expert")}
    assert scores["expert"]["won"]["mean"] == 1.0
    assert scores["expert"]["consistent"]["mean"] == 1.0
    assert scores["random"]["consistent"]["mean"] < 0.5  # it does not look at the marks


def test_a_step_of_self_play_accounts_for_both_sides(tiny_dir: Path, tmp_path: Path):
    """A random model as player 1 says nothing legal, so player 2 is never at turn: dropped, with the reason."""
    settings = {"orchestrator.env.0.args.partner": "self", "orchestrator.rollouts_per_example": 4}
    assert run(step_of("matching_game", "rl.toml", tmp_path / "run", tiny_dir, **SHORT, **settings)) == 0
    (step, *_) = steps_of(tmp_path / "run")
    assert step["drop/partner_left"] > 0
    dropped = sum(value for name, value in step.items() if name.startswith("drop/"))
    assert step["rollout/num"] == step["rollout/num_trained"] + dropped
    records = read_rollouts(tmp_path / "run" / "rollouts" / "step_000000.jsonl")
    assert {record.rollout.role for record in records} == {"player 1", "player 2"}


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
        assert run(step_of("matching_game", "rl.toml", tmp_path / "run", tiny_dir, **SHORT, **args, **settings)) == 0
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
