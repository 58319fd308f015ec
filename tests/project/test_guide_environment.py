"""The guide docs/environments.md, followed literally: its file, its recipe and its commands, on a tiny model."""

import asyncio
import json
import re
import shlex
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from slimrl.cli import run
from slimrl.environments.find import load_taskset
from slimrl.monitor.rollouts import read_rollouts
from slimrl.monitor.sinks import read_metrics
from slimrl.types import Task, Turn

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/environments.md").read_text(encoding="utf-8")
TASK = Task("by hand", {"prices": {"hat": 20, "ink": 7, "egg": 31}})


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def commands(*words: str) -> list[list[str]]:
    """The commands of the page that begin so, without what runs them."""
    lines = [shlex.split(line) for block in blocks("bash") for line in block.splitlines()]
    assert all(line[:2] == ["uv", "run"] for line in lines)
    return [line[2:] for line in lines if line[2 : 2 + len(words)] == list(words)]


@pytest.fixture(scope="module")
def first_step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of somebody who has done the first step."""
    directory = tmp_path_factory.mktemp("first-step")
    (directory / "market.py").write_text(blocks("python")[0], encoding="utf-8")
    return directory


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of somebody who has followed the page."""
    file, more = blocks("python")
    methods = more.partition("besides:\n\n")[2]
    (recipe,) = blocks("toml")
    end_of_the_class = "\n\n\nclass Episode:"
    assert file.count(end_of_the_class) == 1
    directory = tmp_path_factory.mktemp("market")
    whole = file.replace(end_of_the_class, f"\n\n{methods.rstrip()}{end_of_the_class}")
    (directory / "market.py").write_text(whole, encoding="utf-8")
    (directory / "market.toml").write_text(recipe, encoding="utf-8")
    return directory


@pytest.fixture
def taskset(market: Path) -> Any:
    return load_taskset(f"{market / 'market.py'}:Market", {"num_train": 300})


def played(taskset: Any, *replies: str, task: Task = TASK) -> list[Turn]:
    async def play() -> list[Turn]:
        episode = taskset.environment(task)
        await episode.start()
        return [await episode.step(reply) for reply in replies]

    return asyncio.run(play())


def test_the_file_of_the_first_step_is_an_environment(first_step: Path) -> None:
    taskset: Any = load_taskset(f"{first_step / 'market.py'}:Market", {})
    train, test = ([task.data["prices"] for task in taskset.tasks(split)] for split in ("train", "test"))
    assert (len(train), len(test), taskset.tasks("validation")) == (1000, 200, [])
    assert not [prices for prices in test if prices in train]
    assert taskset.tasks("test") == taskset.tasks("test")
    json.dumps([task.data for task in taskset.tasks("test")])
    turns = played(taskset, "<price>ink</price>", "hello", "<price>car</price>", "<cheapest> ink </cheapest>")
    assert [turn.messages[0]["content"] for turn in turns[:3]] == [
        "ink: 7",
        "Write <price>...</price> or <cheapest>...</cheapest>.",
        "That is not for sale.",
    ]
    assert [turn.done for turn in turns] == [False, False, False, True]
    assert turns[3].reward == 1.0 and turns[3].metrics == {"prices_known": 1, "blind": True}
    assert all(turn.metrics.keys() == {"prices_known"} for turn in turns[:3])  # it has not answered yet


def test_the_expert_gets_everything_and_guessing_a_third(taskset: Any) -> None:
    def reward(task: Task, conversation: list[Any]) -> float:
        said = [message["content"] for message in conversation if message["role"] == "assistant"]
        return sum(turn.reward for turn in played(taskset, *said, task=task))

    tasks = taskset.tasks("train")
    assert {reward(task, taskset.scripts["expert"](task, 0)) for task in tasks} == {1.0}
    assert fmean(reward(task, taskset.scripts["random"](task, 0)) for task in tasks) == pytest.approx(1 / 3, abs=0.1)
    assert taskset.scripts["random"](tasks[0], 1) == taskset.scripts["random"](tasks[0], 1)


def test_the_tricks_of_the_page_gain_nothing(taskset: Any) -> None:
    (several,) = played(taskset, "<price>hat</price><price>ink</price><cheapest>ink</cheapest>")
    assert not several.done and several.messages[0]["content"] == "hat: 20" and several.metrics["prices_known"] == 1
    listed = played(taskset, "<cheapest>hat</cheapest><cheapest>egg</cheapest><cheapest>ink</cheapest>")
    assert listed[0].done and listed[0].reward == 0.0
    for claim in ("hat: 3", "I win", "<price>hat", "<cheapest>hat, ink, egg</cheapest>", "x" * 100_000):
        (turn,) = played(taskset, claim)
        assert not turn.done and turn.reward == 0.0 and turn.metrics["prices_known"] == 0
    endless = played(taskset, *["<price>hat</price>"] * 9)
    assert sum(turn.reward for turn in endless) == 0.0 and endless[-1].metrics["prices_known"] == 1


# A tiny model has a token for almost every letter.
TINY = {"model.dtype": "float32", "model.num_threads": 1, "seq_len": 1024}
SHORT = {
    "eval": {"num_examples": 2, "sampling.max_tokens": 48, **TINY},
    "rl": {
        "max_steps": 2,
        "warmup.max_steps": 1,
        "warmup.batch_size": 2,
        "orchestrator.batch_size": 8,
        "orchestrator.rollouts_per_example": 4,
        "eval.num_examples": 2,
        "trainer.loss.type": "reinforce",  # a random model earns nothing: its baseline still gives a signal
        **TINY,
    },
}


def shortened(command: list[str], model: Path) -> list[str]:
    """The command for a tiny model. What it says twice is taken as it is said last."""
    settings = {**SHORT[command[0]], "model.name": model}
    return [*command, *(text for key, value in settings.items() for text in (f"--{key}", str(value)))]


@pytest.mark.nightly
def test_the_models_are_evaluated(market: Path, tiny_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(market)
    base, with_baselines = commands("eval")
    for command in (base, with_baselines):
        assert run(shortened(command, tiny_dir)) == 0
    assert {"report.md", "failures.md"} <= {path.name for path in Path("outputs/market_base").iterdir()}
    found = json.loads(Path("outputs/market_baselines/results.json").read_text())["evaluations"]
    assert found["expert"]["scripted"]["reward"]["mean"] == 1.0
    assert "random" in found and str(tiny_dir) in found


@pytest.mark.nightly
def test_the_recipe_trains(market: Path, tiny_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(market)
    shown, whole = commands("rl")
    assert run(shown) == 0  # --dry-run
    assert not Path("outputs/market").exists()
    assert run(shortened(whole, tiny_dir)) == 0
    output = Path("outputs/market")
    assert {"reward.png", "training.png", "metrics.jsonl", "rollouts"} <= {path.name for path in output.iterdir()}
    steps = [metrics for _, metrics in read_metrics(output / "metrics.jsonl")][:2]
    for name in ("env/prices_known", "env/unfinished", "rollout/truncated", "rollout/turns_mean"):
        assert all(name in metrics for metrics in steps), name
    assert all(metrics["optim/grad_norm"] > 0 for metrics in steps)
    (first, *_) = read_rollouts(output / "rollouts" / "step_000000.jsonl")
    assert first.rollout.messages[0]["content"].startswith("Find out which is cheapest.")
