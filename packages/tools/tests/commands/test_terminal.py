"""The person's screen and keyboard, without a terminal. With one: `test_play_terminal.py` of slimrl-envs."""

import io
import sys

import pytest

from slimrl.errors import UserError
from slimrl_tools.play.terminal import Terminal


def made(typed: str) -> tuple[Terminal, io.StringIO]:
    screen = io.StringIO()
    return Terminal(io.StringIO(typed), screen), screen


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
        ("//not a command\n\n", ["/not a command"]),
        ("a\n//b\n/c\n\n", ["a\n//b\n/c"]),
        ("/nonsense\na\n\n", ["a"]),
        ("half \udc80 a character\n\n", ["half ? a character"]),
        ("", []),
    ],
)
def test_what_is_typed_is_read(typed: str, read: list[str]) -> None:
    assert all_read(made(typed)[0]) == read


def test_a_command_that_is_none_is_answered_with_those_that_are() -> None:
    terminal, screen = made("/exprt\n")
    assert all_read(terminal) == []
    assert "There is no command /exprt. Known: /quit, /help, /expert." in screen.getvalue()


def test_bytes_that_are_no_text_are_passed_over() -> None:
    screen = io.StringIO()
    keyboard = io.TextIOWrapper(io.BytesIO(b"a\xff\n\n"), encoding="utf-8")
    assert Terminal(keyboard, screen).read({}) is None
    assert "no UTF-8" in screen.getvalue()


@pytest.mark.parametrize(
    ("typed", "yes"), [("\n", True), ("y\n", True), ("YES\n", True), ("n\n", False), ("/quit\n", False), ("", False)]
)
def test_enter_alone_agrees(typed: str, yes: bool) -> None:
    assert made(typed)[0].agrees("Another?") is yes


def test_a_pipe_gets_plain_text_with_what_was_typed() -> None:
    terminal, screen = made("my reply\n\n")
    terminal.message("user", "[bold]asked[/bold]\nin two lines")
    terminal.read({})
    assert screen.getvalue().splitlines() == [
        "--- user ---",
        "[bold]asked[/bold]",
        "in two lines",
        "--- you ---",
        "my reply",
    ]


def test_a_message_cannot_repaint_the_screen() -> None:
    screen = io.StringIO()
    Terminal(io.StringIO(), screen).message("tool", "a\x1b[2J\x07\x9b\tb\r\nc\rd")
    assert screen.getvalue().endswith("a\\x1b[2J\\x07\\x9b        b\nc\\rd\n")


def test_without_a_keyboard_there_is_nothing_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)  # as where it is closed
    with pytest.raises(UserError, match="standard input is closed"):
        Terminal()
