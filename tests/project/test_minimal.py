"""Reinforcement learning on one page: it stays one page, and it runs."""

import runpy
import sys
from pathlib import Path

import pytest

MINIMAL = Path(__file__).parents[2] / "examples" / "minimal.py"
MAX_LINES = 130


def test_it_is_one_page() -> None:
    assert len(MINIMAL.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


@pytest.mark.slow
def test_it_runs_from_top_to_bottom(
    tiny_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {"--steps": 2, "--warmup": 1, "--groups": 2, "--group-size": 2, "--test": 2, "--model": tiny_dir}
    monkeypatch.setattr(sys, "argv", [str(MINIMAL), *(str(word) for pair in sizes.items() for word in pair)])
    runpy.run_path(str(MINIMAL), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "base model",
        "after 1 supervised steps",
        "step 1/2",
        "step 2/2",
        "after RL",
    ]
