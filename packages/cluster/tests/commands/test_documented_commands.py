"""The parts of a run as the original designs write their commands."""

from pathlib import Path

import pytest

from slimrl.cli import run

ROOT = Path(__file__).parents[4]


@pytest.mark.slow
@pytest.mark.parametrize("part", ["inference", "orchestrator", "trainer"])
def test_a_documented_command_is_understood(
    part: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert run([part, "@", "examples/reverse_text/rl.toml", "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("# slimrl ")
