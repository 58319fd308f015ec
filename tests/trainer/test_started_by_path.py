"""The files of the loops are programs: started by path or as modules they are their commands, with settings and all."""

import runpy
import sys
from pathlib import Path

import pytest

from slimrl.monitor.sinks import read_metrics

ROOT = Path(__file__).parents[2]
LOOPS = ROOT / "src" / "slimrl" / "trainer"
DEBUG = str(ROOT / "configs" / "debug" / "rl" / "train.toml")


def status_of(loop: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Runs `python src/slimrl/trainer/LOOP/train.py ...` in this process, which has loaded PyTorch already."""
    path = str(LOOPS / loop / "train.py")
    monkeypatch.setattr(sys, "argv", [path, *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(path, run_name="__main__")
    return int(ended.value.code or 0)


@pytest.mark.slow
def test_the_loop_of_reinforcement_learning_trains(
    tmp_path: Path, tiny_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ["--model.name", str(tiny_dir), "--model.device", "cpu", "--max_steps", "2", "--output_dir", str(tmp_path)]
    assert status_of("rl", ["@", DEBUG, *flags], monkeypatch) == 0
    assert [step for step, _ in read_metrics(tmp_path / "metrics.jsonl")] == [0, 1]
    assert (tmp_path / "weights" / "step_2").is_dir()


@pytest.mark.parametrize(
    ("loop", "arguments", "shown"),
    [
        ("rl", ["@", DEBUG, "--max_steps", "7", "--dry-run"], "max_steps = 7"),
        ("rl", ["--help"], "trainer.optim.lr"),
        ("sft", ["--data.type", "expert", "--data.env.id", "reverse-text", "--dry-run"], 'id = "reverse-text"'),
        ("sft", ["--help"], "val_interval_steps"),
    ],
)
def test_its_flags_are_those_of_the_command(
    loop: str, arguments: list[str], shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(loop, arguments, monkeypatch) == 0
    assert shown in capsys.readouterr().out


def test_a_mistake_is_told_and_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of("rl", ["@", "missing.toml"], monkeypatch) == 2
    assert "missing.toml" in capsys.readouterr().err
