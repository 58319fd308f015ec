"""The cache of built directories: built once, checked, never half there."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from slimrl.errors import UserError
from slimrl.io.cache import build_once
from slimrl.io.checksums import find_damage, new_directory

KILLED_BUILD = """
import sys, time
from pathlib import Path
from slimrl.io.cache import build_once

def build(directory):
    (directory / "weights").write_text("half")
    print("building", flush=True)
    time.sleep(60)

build_once(Path(sys.argv[1]), build)
"""


class Builder:
    """Writes two files and counts how often it was asked to."""

    calls = 0

    def __call__(self, directory: Path, delay_s: float = 0.0) -> None:
        self.calls += 1
        (directory / "weights").write_text("0123456789")
        time.sleep(delay_s)
        (directory / "config").write_text("{}")


def change_a_byte(entry: Path) -> None:
    times = (entry / "weights").stat()
    (entry / "weights").write_text("0123X56789")
    os.utime(entry / "weights", ns=(times.st_atime_ns, times.st_mtime_ns))  # a disk that fails changes no time


def test_entry_is_built_once(tmp_path: Path) -> None:
    build = Builder()
    for _ in range(2):
        entry = build_once(tmp_path / "deep" / "entry", build)
        assert (entry / "weights").read_text() == "0123456789" and build.calls == 1
        os.utime(entry / "weights", (1, 1))  # as in a copied cache


def test_damaged_entry_is_rebuilt_with_a_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build = Builder()
    entry = build_once(tmp_path / "entry", build)
    change_a_byte(entry)
    build_once(entry, build)
    assert build.calls == 2 and (entry / "weights").read_text() == "0123456789"
    assert "Rebuilding" in capsys.readouterr().err and not find_damage(entry)


def test_simultaneous_users_build_once(tmp_path: Path) -> None:
    build = Builder()
    with ThreadPoolExecutor(4) as pool:
        slow = partial(build, delay_s=0.2)
        entries = list(pool.map(lambda _: build_once(tmp_path / "entry", slow), range(4)))
    assert build.calls == 1 and all((entry / "config").is_file() for entry in entries)


def test_killed_build_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    entry = tmp_path / "entry"
    process = subprocess.Popen([sys.executable, "-c", KILLED_BUILD, str(entry)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "building\n"
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not entry.exists()
    build_once(entry, Builder())
    assert (entry / "weights").read_text() == "0123456789"
    assert [path.name for path in tmp_path.iterdir() if ".tmp-" in path.name] == []


def test_failed_build_leaves_no_entry_and_names_the_variable_to_set(tmp_path: Path) -> None:
    def build(directory: Path) -> None:
        (directory / "weights").write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(UserError, match=r"No space left on device.*SLIMRL_CACHE"):
        build_once(tmp_path / "entry", build)
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == []
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="SLIMRL_CACHE"):
        build_once(tmp_path / "file" / "entry", Builder())


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_files_of_a_new_directory_have_the_mode_of_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        with new_directory(tmp_path / "step_1") as temporary:
            (temporary / "adapter").mkdir()
            for name in ("weights", "adapter/weights", "program"):
                (temporary / name).write_text("")
                (temporary / name).chmod(0o700 if name == "program" else 0o600)
    finally:
        os.umask(before)
    found = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "step_1").rglob("*") if path.is_file()}
    assert found == {"weights": mode, "program": mode | 0o700, "SHA256SUMS": mode}


def test_new_directory_replaces_the_old_one_whole_or_keeps_it_when_the_body_fails(tmp_path: Path) -> None:
    target = tmp_path / "step_1"
    target.mkdir()
    (target / "old").write_text("")
    with contextlib.suppress(OSError), new_directory(target) as temporary:
        (temporary / "fresh").write_text("")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert [path.name for path in target.iterdir()] == ["old"]
    with new_directory(target) as temporary:
        (temporary / "fresh").write_text("")
    assert sorted(path.name for path in target.iterdir()) == ["SHA256SUMS", "fresh"]
    assert [path.name for path in tmp_path.iterdir()] == ["step_1"]
