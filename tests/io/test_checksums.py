"""Checksums of directories and of JSON objects: what is as it was written passes, and nothing else."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from slimrl.errors import UserError
from slimrl.io.checksums import (
    SUMS,
    check_sums,
    file_sha256,
    find_damage,
    has_wrong_digest,
    is_sealed,
    seal,
)
from slimrl.io.files import encode_line, parse_object


def sealed(directory: Path) -> Path:
    (directory / "adapter").mkdir(parents=True)
    for name in ("model.safetensors", "config.json", "adapter/weights"):
        (directory / name).write_text(f"the content of {name}")
    seal(directory)
    return directory


@pytest.mark.skipif(not shutil.which("sha256sum"), reason="needs coreutils")
def test_sha256sum_checks_a_directory(tmp_path: Path) -> None:
    directory = sealed(tmp_path / "step_1")
    done = subprocess.run(["sha256sum", "-c", "--strict", SUMS], cwd=directory, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.splitlines()) == {"adapter/weights: OK", "config.json: OK", "model.safetensors: OK"}


def test_whatever_file_is_changed_is_named(tmp_path: Path) -> None:
    directory = sealed(tmp_path / "step_1")
    assert not find_damage(directory)
    for name in ("model.safetensors", "config.json", "adapter/weights"):
        content = (directory / name).read_bytes()
        (directory / name).write_bytes(content[:-1] + b"!")
        assert find_damage(directory) == f"{name} is not as written (SHA-256)"
        assert not find_damage(directory, [other for other in ("config.json", "model.safetensors") if other != name])
        (directory / name).unlink()
        assert find_damage(directory) == f"{name} is missing"
        os.mkfifo(directory / name)  # is not waited for
        assert find_damage(directory) == f"{name} is missing"
        (directory / name).unlink()
        (directory / name).write_bytes(content)
    assert not find_damage(directory)


@pytest.mark.parametrize("mark", ["  ", " *"])
def test_checksums_of_another_program_are_compared(tmp_path: Path, mark: str) -> None:
    directory = sealed(tmp_path / "model")
    digest = file_sha256(directory / "config.json")
    (directory / SUMS).write_text(f"{digest}{mark}config.json\n")
    assert not find_damage(directory)
    (directory / "config.json").write_text("other")
    assert find_damage(directory) == "config.json is not as written (SHA-256)"
    for text in ("", f"{digest}{mark}config.json", f"{digest[:-1]}{mark}config.json\n", "hello\n"):
        (directory / SUMS).write_text(text)
        assert find_damage(directory) == f"its {SUMS} is missing or damaged"


@pytest.mark.slow
def test_no_byte_of_the_checksums_can_be_changed_or_left_out(tmp_path: Path) -> None:
    directory = sealed(tmp_path / "step_1")
    whole = (directory / SUMS).read_bytes()
    for place in range(0, len(whole), 3):
        changed = bytes([whole[place] ^ 0x20])
        for content in (
            whole[:place],
            whole[:place] + changed + whole[place + 1 :],
            whole[:place] + whole[place + 1 :],
        ):
            (directory / SUMS).write_bytes(content)
            assert find_damage(directory), (place, content)


def test_damage_is_an_error_with_the_way_out_and_no_checksums_are_none(tmp_path: Path) -> None:
    directory = sealed(tmp_path / "step_1")
    check_sums(directory)
    (directory / "config.json").write_text("edited")
    with pytest.raises(UserError, match=rf"step_1 is damaged: config\.json is not.*delete \S*step_1/{SUMS}"):
        check_sums(directory)
    (directory / SUMS).unlink()
    assert not is_sealed(directory)
    check_sums(directory)


@pytest.mark.parametrize("content", [{"a": 1.5, "text": 'with "quotes", \u2028 and {braces}'}, {"sha256": "own"}])
def test_no_byte_of_a_line_can_be_changed(content: dict[str, object]) -> None:
    line = encode_line(content, digest=True).rstrip()
    assert not has_wrong_digest(line)
    assert {**content, "sha256": None} == {**parse_object(line), "sha256": None}
    body = line.index(b', "sha256": "', len(line) - 90)
    for place in range(len(line)):
        changed = line[:place] + bytes([line[place] ^ 1]) + line[place + 1 :]
        try:
            found = parse_object(changed)
        except ValueError:
            continue
        assert place >= body and found.items() >= {"a": 1.5}.items() & content.items()  # in the digest's own name
