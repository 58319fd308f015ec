"""The RL loop started as a module, as with torchrun, is the command `trainer` with its settings."""

import runpy
import sys
from pathlib import Path

import pytest

from slimrl.monitor.sinks import read_metrics

DEBUG = str(Path(__file__).parents[2] / "configs" / "debug" / "rl" / "train.toml")


def status_of(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Run `python -m slimrl.trainer.rl.train ...` in this process, which has loaded PyTorch already."""
    monkeypatch.setattr(sys, "argv", ["train", *arguments])
    monkeypatch.delitem(sys.modules, "slimrl.trainer.rl.train", raising=False)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("slimrl.trainer.rl.train", run_name="__main__")
    return int(ended.value.code or 0)


@pytest.mark.slow
def test_the_loop_of_reinforcement_learning_trains(
    tmp_path: Path, tiny_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ["--model.name", str(tiny_dir), "--model.device", "cpu", "--max_steps", "2", "--output_dir", str(tmp_path)]
    assert status_of(["@", DEBUG, *flags], monkeypatch) == 0
    assert [step for step, _ in read_metrics(tmp_path / "metrics.jsonl")] == [0, 1]
    assert (tmp_path / "weights" / "step_2").is_dir()


def test_a_mistake_is_told_and_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(["@", "missing.toml"], monkeypatch) == 2
    assert "missing.toml" in capsys.readouterr().err
