"""The commands that a run prints begin as the one that the user typed."""

import sys
from pathlib import Path

import pytest

from slimrl.io import invocation
from slimrl.io.invocation import command_prefix, uv_options

ARGUMENTS = ["@", "a.toml", "--max_steps", "3"]


@pytest.mark.parametrize(
    ("typed", "options"),
    [
        ("uv run --with six rl", "--with six"),
        ("/usr/bin/uv run --with six --with-editable ./mine --extra wandb rl", None),
        ("uv run --with six slimrl rl", "--with six"),
        ("uv run --with=six -m slimrl rl", "--with=six"),
        ("uv run --with six python -m slimrl rl", "--with six"),
        ("uv run --with six python3.12 scripts/train.py", "--with six"),
        ("uv run --with six scripts/train.py", "--with six"),
        ("uv run -p python3.12 scripts/train.py", "-p python3.12"),
        ("uv run --python python3.12 rl", "--python python3.12"),
        ("uv run rl", ""),
        ("uv tool run --with six slimrl rl", ""),
        ("uvx --with six slimrl rl", ""),
        ("bash -c run", ""),
        ("", ""),
    ],
)
def test_the_options_of_uv_are_kept(typed: str, options: str | None) -> None:
    words = typed.split()
    arguments = [*(["rl"] if words[-2:] == ["slimrl", "rl"] else []), *ARGUMENTS]
    expected = words[2:-1] if options is None else options.split()
    assert uv_options([*words, *ARGUMENTS] if words else [], arguments) == expected


def test_another_command_line_has_none() -> None:
    assert uv_options(["uv", "run", "--with", "six", "rl", "@", "b.toml"], ["@", "a.toml"]) == []


def test_the_prefix_says_what_to_type(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", ["/x/bin/rl", *ARGUMENTS])
    monkeypatch.setattr(invocation, "_words_of_parent", lambda: ["uv", "run", "--with", "six>1", "rl", *ARGUMENTS])
    monkeypatch.delenv("UV", raising=False)
    assert command_prefix() == ""
    monkeypatch.setenv("UV", "/usr/bin/uv")
    assert command_prefix() == "uv run --with 'six>1' "
    monkeypatch.setattr(invocation, "_words_of_parent", lambda: ["bash"])
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    assert command_prefix() == "uv run "
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "builds-v0" / ".tmp1"))
    assert command_prefix() == ""
