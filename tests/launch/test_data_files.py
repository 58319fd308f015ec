"""Files of data that cannot be read are told by a dry run and before a model is loaded."""

from pathlib import Path

import pytest

from slimrl import cli


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
