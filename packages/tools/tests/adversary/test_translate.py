"""`slimrl translate` with files that are none, or have secrets."""

import os
from pathlib import Path

import pytest

from tests.adversary.test_inputs import LEAKS, SECRET, refusal, write_leak

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("suffix", [".toml", ".yaml", ".json"])
@pytest.mark.parametrize(
    ("target", "kind"), [("pipe", "a pipe"), ("/dev/zero", "a device"), ("directory", "a directory")]
)
def test_a_pipe_a_device_and_a_directory_are_no_files(
    target: str, kind: str, suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    (tmp_path / f"x{suffix}").symlink_to(tmp_path / target)
    assert kind in refusal(["translate", str(tmp_path / f"x{suffix}")], capsys)


@pytest.mark.parametrize("leak", LEAKS)
def test_no_secret_is_said(leak: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_leak(leak, tmp_path / "a.json")
    assert SECRET not in refusal(["translate", str(tmp_path / "a.json")], capsys)
