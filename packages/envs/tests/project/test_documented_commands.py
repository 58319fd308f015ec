"""Commands with these environments as the original designs write them."""

from pathlib import Path

import pytest

from slimrl.cli import run

ROOT = Path(__file__).parents[4]


@pytest.mark.slow
@pytest.mark.parametrize(
    "argv",
    [
        ["rl", "@", "examples/alphabet_sort/rl.toml"],
        ["rl", "@", "examples/matching_game/rl.toml"],
        ["sft", "@", "examples/wordle/sft.toml"],
    ],
    ids=" ".join,
)
def test_a_documented_command_is_understood(
    argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert run([*argv, "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("# slimrl ")
