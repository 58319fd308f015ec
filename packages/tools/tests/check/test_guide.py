"""The environment that docs/environments.md builds is played and checked as the page says."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slimrl.cli import run
from slimrl_tools.check import subjects
from tests.project.test_guide_environment import PAGE, ROOT, commands, first_step, market

__all__ = ["first_step", "market"]  # fixtures


@pytest.mark.slow
def test_it_is_played_in_the_terminal(first_step: Path) -> None:
    (command,) = commands("slimrl", "play")
    replies = "<price>{}</price>\n\n/quit\n"
    shown = subprocess.run(
        [sys.executable, "-m", *command],
        input=replies,
        cwd=first_step,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    assert "which is cheapest?" in shown.stdout and "Find out which is cheapest." in shown.stdout
    assert "That is not for sale." in shown.stdout


@pytest.mark.nightly
def test_the_environment_is_tried(market: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(market)
    (command,) = commands("slimrl", "check")
    assert run([*command[1:], "--json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)
    assert {one["level"] for one in report["findings"]} == {"ok"}


def test_the_page_lists_every_subject_that_is_looked_at() -> None:
    both = PAGE + (ROOT / "docs/environment_details.md").read_text(encoding="utf-8")
    assert [name for name in subjects.REMEDIES if f"`{name}`" not in both] == []
