"""The script as a person runs it."""

import runpy
import sys
from pathlib import Path

import pytest

from packages.envs.tests.matching_game.analysis.test_compare import learner, recorded

SCRIPT = str(Path(__file__).parents[4] / "scripts" / "analyze_questions.py")


def status_of(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["analyze_questions.py", *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(SCRIPT, run_name="__main__")
    return int(ended.value.code or 0)


@pytest.mark.slow
def test_it_draws_several_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [str(recorded(tmp_path / f"seed{seed}", learner(seed), num_steps=10)) for seed in range(2)]
    assert status_of(["--log_dir", *runs, "--output_dir", str(tmp_path / "plots")], monkeypatch) == 0
    written = [Path(line) for line in capsys.readouterr().out.split()]
    assert [path.name for path in written] == [
        "over_training.png", "questions_and_reward.png", "summary.json", "report.md",
    ]  # fmt: skip
    assert all(path.is_file() for path in written)


def test_it_tells_what_it_is_for(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["--help"], monkeypatch) == 0
    told = capsys.readouterr().out
    assert all(text in told for text in ("--log_dir", "--output_dir", "how many questions a policy asks"))


def test_a_mistake_is_told_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(["--log_dir", str(tmp_path), "--output_dir", str(tmp_path / "plots")], monkeypatch) == 2
    assert capsys.readouterr().err.startswith(f"error: {tmp_path} has no rollouts")
