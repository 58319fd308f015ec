"""A name that no model has and a data file that cannot be read are refused before a load, and by a dry run."""

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


@pytest.mark.parametrize("dry", [["--dry-run"], []])
@pytest.mark.parametrize("key", ["path", "val_path"])
@pytest.mark.parametrize("name", ["missing.jsonl", "missing.parquet", "", "latin.jsonl"])
def test_a_data_file_that_cannot_be_read_is_named(
    dry: list[str], key: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = tmp_path / "good.jsonl", tmp_path / name
    good.write_text('{"messages": []}\n')
    (tmp_path / "latin.jsonl").write_bytes(b'{"messages": "\xe9"}\n')
    data = {"path": good, "val_path": good, key: bad}
    words = [word for key, value in data.items() for word in (f"--data.{key}", str(value))]
    out = tmp_path / "out"
    assert cli.run(["sft", "--data.type", "file", *words, "--output_dir", str(out), *dry]) == 2
    error = capsys.readouterr().err
    assert str(bad) in error
    assert key in error or "UTF-8" in error
    assert not out.exists()
