"""`slimrl init`: the examples in a directory of one's own, and nothing overwritten."""

import shutil
import tomllib
from pathlib import Path

import pytest

import slimrl
from slimrl import cli
from slimrl.commands.init import DIRECTORIES, examples_root
from slimrl.errors import UserError

ROOT = Path(__file__).parents[2]


def files_below(root: Path) -> list[Path]:
    return sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())


def test_examples_are_copied_and_the_printed_command_works_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "my runs"
    assert cli.run(["init", str(directory)]) == 0
    said = capsys.readouterr().out
    assert said.endswith(f"Next: cd '{directory}' && slimrl rl @ examples/reverse_text/rl.toml\n")
    assert {path.parts[0] for path in files_below(directory)} == set(DIRECTORIES)
    assert all((directory / path).read_bytes() == (ROOT / path).read_bytes() for path in files_below(directory))
    monkeypatch.chdir(directory)
    assert cli.run(["rl", "@", "examples/reverse_text/rl.toml", "--dry-run"]) == 0
    assert tomllib.loads(capsys.readouterr().out)["max_steps"] == 45


def test_files_that_are_there_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = tmp_path / "examples" / "reverse_text" / "rl.toml"
    changed.parent.mkdir(parents=True)
    changed.write_text("seed = 7\n")
    monkeypatch.chdir(tmp_path)
    assert cli.run(["init", "."]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("slimrl: . already has examples/reverse_text/rl.toml: nothing was copied")
    assert files_below(tmp_path) == [changed.relative_to(tmp_path)]
    assert changed.read_text() == "seed = 7\n"
    changed.unlink()
    assert cli.run(["init", "."]) == 0
    assert capsys.readouterr().out.endswith("\nNext: slimrl rl @ examples/reverse_text/rl.toml\n")


def test_wheel_has_them_inside_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "slimrl"
    monkeypatch.setattr(slimrl, "__file__", str(package / "__init__.py"))
    with pytest.raises(UserError, match="has no examples"):
        examples_root()
    for name in DIRECTORIES:
        shutil.copytree(ROOT / name, package / "_examples" / name)
    assert examples_root() == package / "_examples"


def test_a_directory_that_cannot_be_written_is_named_and_the_help_names_the_next_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert cli.run(["init", str(tmp_path / "file")]) == 2
    assert f"{tmp_path / 'file'}" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        cli.run(["init", "--help"])
    assert stopped.value.code == 0
    assert "slimrl rl @ examples/reverse_text/rl.toml" in capsys.readouterr().out
