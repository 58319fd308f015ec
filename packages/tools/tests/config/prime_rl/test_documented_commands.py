"""Flags of prime-rl that its guides show and slimrl does not have: each says why in a line."""

from pathlib import Path

import pytest

from slimrl.cli import run

RECIPE = str(Path(__file__).parents[5] / "examples" / "reverse_text" / "rl.toml")


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--clean", "delete the directory yourself"),
        ("--bench", "`slimrl trainer` measures the trainer alone"),
    ],
)
def test_a_documented_flag_that_is_not_here_says_so(
    flag: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["rl", "@", RECIPE, flag, "--output_dir", str(tmp_path / "new")]) == 2
    assert message in capsys.readouterr().err
