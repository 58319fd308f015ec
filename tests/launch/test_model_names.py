"""A model's name that can be nothing is told with the setting that has it, before anything is loaded."""

from pathlib import Path

import pytest

from slimrl import cli

RL = ["rl", "--orchestrator.env.0.id", "reverse-text", "--teacher.type", "model"]
NAMES = {"--model.name": "smollm2-135m", "--teacher.name": "smollm2-135m"}


@pytest.mark.parametrize("dry", [["--dry-run"], []])
@pytest.mark.parametrize("flag", NAMES)
@pytest.mark.parametrize("name", ["./missing", "smolm2-135m", "missing.gguf"])
def test_a_name_that_can_be_nothing_is_told_with_its_setting(
    dry: list[str], flag: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word for pair in {**NAMES, flag: name}.items() for word in pair]
    assert cli.run([*RL, *words, "--output_dir", str(tmp_path / "out"), *dry]) == 2
    error = capsys.readouterr().err
    assert f"{flag[2:]} " in error
    assert name in error
    assert not (tmp_path / "out").exists()
