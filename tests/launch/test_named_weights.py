"""The names of a run's weights, and what training they have had."""

import math
from pathlib import Path

import pytest

from slimrl.config.reading.load import load
from slimrl.config.run import EvalRunConfig, RLConfig, TrainerOnlyConfig
from slimrl.io.run_dir import RunDir
from slimrl.launch.open_dir import with_pinned_model
from slimrl.launch.parts import BestWeights, best_metric
from slimrl.launch.supervised import without_needless_warm_up
from slimrl.models.history import TrainingHistory, read_history, write_history
from slimrl.monitor.sinks import JsonlSink
from slimrl.trainer.state import keep_newest, name_best

RL = ["--orchestrator.env.0.id", "reverse-text", "--warmup.max_steps", "3"]
REWARD = "held_out/reward_greedy"


def save(output_dir: Path, *steps: int) -> None:
    for step in steps:
        RunDir(output_dir).weights_of(step).mkdir(parents=True)


def names(output_dir: Path) -> dict[str, str]:
    """The target of each name."""
    weights = output_dir / "weights"
    return {path.name: str(path.readlink()) for path in weights.iterdir() if path.is_symlink()}


def test_the_best_weights_outlive_newer_ones(tmp_path: Path):
    save(tmp_path, 2, 4)
    name_best(tmp_path, {0: 0.9, 2: 0.5, 4: 0.4})
    save(tmp_path, 6, 8)
    keep_newest(tmp_path, 2)
    assert names(tmp_path) == {"latest": "step_8", "best": "step_2"}
    assert sorted(path.name for path in (tmp_path / "weights").glob("step_*")) == ["step_2", "step_6", "step_8"]
    name_best(tmp_path, {2: 0.5, 8: 0.5})
    keep_newest(tmp_path, 2)
    assert names(tmp_path)["best"] == "step_8" and not RunDir(tmp_path).weights_of(2).exists()


@pytest.mark.parametrize(
    ("scores", "found"),
    [
        ([{}, {4: 1.0}], {}),  # nothing measured, or weights that are not there
        ([{2: math.nan}], {}),
        ([{2: math.nan, 10: -0.3}], {"best": "step_10"}),
    ],
)
def test_only_measured_weights_have_a_name(scores: list[dict[int, float]], found: dict[str, str], tmp_path: Path):
    save(tmp_path, 2, 10)
    for one in scores:
        name_best(tmp_path, one)
    assert names(tmp_path) == found
    keep_newest(tmp_path, 1)
    assert names(tmp_path) == {"latest": "step_10", **found}


def test_a_run_watches_its_measure_and_a_resumed_one_remembers(tmp_path: Path):
    save(tmp_path, 2, 4)
    file = JsonlSink(tmp_path / "metrics.jsonl", 0)
    for sink in (file, BestWeights(tmp_path, REWARD)):
        sink.write(2, {REWARD: 0.6})
        sink.write(3, {"reward/mean": 9.0})
    file.close()
    assert names(tmp_path) == {"best": "step_2"}
    BestWeights(tmp_path, REWARD).write(4, {REWARD: 0.5})
    assert names(tmp_path) == {"best": "step_2"}


def test_each_command_has_its_measure_and_a_loss_is_better_when_it_is_lower(tmp_path: Path):
    assert best_metric(load(RLConfig, RL, {}).config) == REWARD
    assert best_metric(load(TrainerOnlyConfig, [], {}).config) == ""
    save(tmp_path, 2, 4)
    sink = BestWeights(tmp_path, "sft/val_loss")
    sink.write(2, {"sft/val_loss": 0.4})
    sink.write(4, {"sft/val_loss": 0.3})
    assert names(tmp_path) == {"best": "step_4"}


def test_a_run_keeps_the_weights_that_a_name_stood_for(tmp_path: Path):
    save(tmp_path, 2)
    keep_newest(tmp_path, 1)
    argv = ["--env.0.id", "reverse-text", "--model.name", str(tmp_path / "weights" / "latest")]
    pinned = with_pinned_model(load(EvalRunConfig, argv, {}))
    assert pinned.config.model.name == str(RunDir(tmp_path).weights_of(2))
    assert with_pinned_model(pinned) is pinned


@pytest.mark.parametrize(("trained", "steps"), [(["sft"], 0), (["sft", "rl"], 0), (["rl"], 3), ([], 3)])
def test_a_model_is_warmed_up_once(trained: list[str], steps: int, tmp_path: Path):
    write_history(tmp_path, trained, tmp_path.name)
    notes: list[str] = []
    config = load(RLConfig, [*RL, "--model.name", str(tmp_path)], {}).config
    assert without_needless_warm_up(config, notes.append).warmup.max_steps == steps
    assert len(notes) == (steps == 0)


@pytest.mark.parametrize("content", ["[]", '{"trained": 3}'])
def test_a_file_without_trainings_is_no_history(content: str, tmp_path: Path):
    (tmp_path / "slimrl.json").write_text(content)
    assert read_history(tmp_path) == TrainingHistory()
    assert read_history(tmp_path / "nowhere") == TrainingHistory()
