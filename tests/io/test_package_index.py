"""Which package index is asked: the one that pip or uv would ask, by their variables and files."""

from pathlib import Path

import pytest

from slimrl.errors import UserError
from slimrl.io.package_index import PYPI, index_settings

FILE, VARIABLE, MORE = "https://file.test/simple", "https://variable.test/simple", "https://more.test/simple"
NO_PIP = {"PIP_CONFIG_FILE": "/dev/null"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home, whose machine has no configuration beside it."""
    monkeypatch.setattr("sys.prefix", str(tmp_path / "venv"))
    return tmp_path


def urls(environ: dict[str, str], home: Path) -> tuple[str, ...]:
    return index_settings({"XDG_CONFIG_DIRS": "/nowhere", **environ}, home).urls


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, (PYPI,)),
        ({"PIP_INDEX_URL": VARIABLE}, (VARIABLE,)),
        ({"PIP_INDEX_URL": VARIABLE, "PIP_EXTRA_INDEX_URL": f"{MORE} {VARIABLE}"}, (VARIABLE, MORE)),
        ({"UV_INDEX_URL": VARIABLE}, (VARIABLE,)),
        ({"UV_DEFAULT_INDEX": f"corporate={VARIABLE}", "PIP_INDEX_URL": MORE}, (VARIABLE,)),
        ({"UV_INDEX": f"corporate={MORE}"}, (PYPI, MORE)),
        ({"PIP_INDEX_URL": VARIABLE, "PIP_NO_INDEX": "1"}, ()),
    ],
)
def test_variables_name_the_index(environ: dict[str, str], expected: tuple[str, ...], home: Path) -> None:
    assert urls({**NO_PIP, **environ}, home) == expected


@pytest.mark.parametrize("place", [".pip/pip.conf", ".config/pip/pip.conf", "venv/pip.conf", "chosen.conf"])
def test_pips_files_are_read_and_variables_come_first(place: str, home: Path) -> None:
    (home / place).parent.mkdir(parents=True, exist_ok=True)
    (home / place).write_text(f"[global]\nindex-url = {FILE}\ncert = /a.pem\n[install]\nextra-index-url =\n  {MORE}\n")
    environ = {"PIP_CONFIG_FILE": str(home / "chosen.conf")}
    found = index_settings({**environ, "XDG_CONFIG_DIRS": "/nowhere"}, home)
    assert (found.urls[0], found.certificates) == (FILE, "/a.pem")
    assert MORE in found.urls
    assert urls({**environ, "PIP_INDEX_URL": VARIABLE}, home)[0] == VARIABLE


@pytest.mark.parametrize(
    "text",
    [
        f'index-url = "{FILE}"\nextra-index-url = ["{MORE}"]\n',
        f'[[index]]\nurl = "{MORE}"\n[[index]]\nurl = "{FILE}"\ndefault = true\n',
        f'[pip]\nindex-url = "{FILE}"\nextra-index-url = ["{MORE}"]\n',
    ],
)
def test_uvs_file_is_read(text: str, home: Path) -> None:
    (home / ".config" / "uv").mkdir(parents=True)
    (home / ".config" / "uv" / "uv.toml").write_text(text)
    assert urls(NO_PIP, home) == (FILE, MORE)


def test_file_that_cannot_be_read_is_named(home: Path) -> None:
    (home / "pip.conf").write_text("index-url = x\n")
    with pytest.raises(UserError, match=r"pip's configuration .*pip\.conf cannot be read"):
        urls({"PIP_CONFIG_FILE": str(home / "pip.conf")}, home)
    (home / "uv.toml").write_text("index-url = x\n")
    with pytest.raises(UserError, match=r"uv's configuration .*uv\.toml cannot be read"):
        urls({**NO_PIP, "UV_CONFIG_FILE": str(home / "uv.toml")}, home)
