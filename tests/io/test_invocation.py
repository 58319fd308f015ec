"""The commands that a run prints begin as the one that the user typed."""

import sys
from pathlib import Path

import pytest

from slimrl.io.invocation import command_prefix


@pytest.mark.parametrize(
    ("uv", "directory", "prefix"),
    [("", ".venv", ""), ("/usr/bin/uv", ".venv", "uv run "), ("/usr/bin/uv", "builds-v0/.tmp1", "")],
)
def test_the_prefix_says_what_to_type(
    uv: str, directory: str, prefix: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("UV", uv)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / directory))
    assert command_prefix() == prefix
