"""The person's screen and keyboard."""

import io
import sys
from collections.abc import Callable

import pytest

from slimrl.errors import UserError
from slimrl_tools.commands.play import Terminal


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Terminal]:
    """A function that makes the terminal of a person who types a text."""

    def make(typed: str) -> Terminal:
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        return Terminal()

    return make


def all_read(terminal: Terminal) -> list[str]:
    """What is read until the end of the input; a command stands by its name."""
    found: list[str] = []
    actions = {name: lambda name=name: found.append(name) for name in ("/help", "/expert")}
    while (reply := terminal.read(actions)) is not None:
        found.append(reply)
    return found


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("one line\n\n", ["one line"]),
        ("two\nlines\n\n", ["two\nlines"]),
        ("the end of the input ends it", ["the end of the input ends it"]),
        ("\n\n  \nempty lines before it are nothing\n\n", ["empty lines before it are nothing"]),
        ("a\n\nb\n\n", ["a", "b"]),
        ("  indented\n\tand tabbed\n\n", ["  indented\n\tand tabbed"]),
        ("carriage\r\nreturns\r\n\r\n", ["carriage\nreturns"]),
        ("/expert\na\n\n", ["/expert", "a"]),
        ("half a reply\n/help\na\n\n", ["/help", "a"]),
        ("/no command\n\n", ["/no command"]),
        ("", []),
    ],
)
def test_what_is_typed_is_read(typed: str, read: list[str], made: Callable[[str], Terminal]) -> None:
    assert all_read(made(typed)) == read


def test_bytes_that_are_no_text_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\xff\n\n"), encoding="utf-8"))
    assert Terminal().read({}) == "a\ufffd"


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_message_cannot_repaint_the_screen(is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    Terminal().message("tool", "a\x1b[2J\x07\x9b\tb\r\nc\rd")
    shown = capsys.readouterr().out
    assert "\x1b[2J" not in shown and "\\x1b[2J\\x07\\x9b" in shown and "c\\rd" in shown


def test_without_a_keyboard_there_is_nothing_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)  # as where it is closed
    with pytest.raises(UserError, match="standard input is closed"):
        Terminal()
