"""The names of a run's weights, and what training they have had."""

from pathlib import Path

import pytest

from slimrl.config.reading.load import load
from slimrl.config.run import EvalRunConfig, RLConfig
from slimrl.io.run_dir import RunDir
from slimrl.launch.open_dir import with_pinned_model
from slimrl.launch.supervised import without_needless_warm_up
from slimrl.models.history import TrainingHistory, read_history, write_history
from slimrl.trainer.state import keep_newest

RL = ["--orchestrator.env.0.id", "reverse-text", "--warmup.max_steps", "3"]


def test_the_newest_weights_are_kept_and_named(tmp_path: Path):
    weights = RunDir(tmp_path).weights
    for step in (2, 6, 10):
        RunDir(tmp_path).weights_of(step).mkdir(parents=True)
        keep_newest(tmp_path, 2)
    assert sorted(path.name for path in weights.glob("step_*")) == ["step_10", "step_6"]
    assert str((weights / "latest").readlink()) == "step_10"


def test_a_run_keeps_the_weights_that_a_name_stood_for(tmp_path: Path):
    RunDir(tmp_path).weights_of(2).mkdir(parents=True)
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
