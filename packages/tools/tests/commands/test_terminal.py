"""The person's screen and keyboard, without a terminal. With one: `test_play_terminal.py` of slimrl-envs."""

import io
import sys

import pytest

from slimrl.errors import UserError
from slimrl_tools.play.terminal import Terminal, Typed


def made(typed: str, commands: tuple[str, ...] = ("/expert",)) -> tuple[Terminal, io.StringIO]:
    screen = io.StringIO()
    return Terminal(commands, io.StringIO(typed), screen), screen


def all_read(typed: str) -> list[Typed]:
    terminal, _ = made(typed)
    read = [terminal.read()]
    while read[-1].command != "/quit":
        read.append(terminal.read())
    return read[:-1]


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("one line\n\n", [Typed("one line")]),
        ("two\nlines\n\n", [Typed("two\nlines")]),
        ("the end of the input ends it", [Typed("the end of the input ends it")]),
        ("\n\n  \nempty lines before it are nothing\n\n", [Typed("empty lines before it are nothing")]),
        ("a\n\nb\n\n", [Typed("a"), Typed("b")]),
        ("  indented\n\tand tabbed\n\n", [Typed("  indented\n\tand tabbed")]),
        ("carriage\r\nreturns\r\n\r\n", [Typed("carriage\nreturns")]),
        ("/expert\na\n\n", [Typed(command="/expert"), Typed("a")]),
        ("half a reply\n/help\na\n\n", [Typed(command="/help"), Typed("a")]),
        ("//not a command\n\n", [Typed("/not a command")]),
        ("a\n//b\n/c\n\n", [Typed("a\n//b\n/c")]),
        ("/nonsense\na\n\n", [Typed("a")]),
        ("half \udc80 a character\n\n", [Typed("half ? a character")]),
        ("", []),
    ],
)
def test_what_is_typed_is_read(typed: str, read: list[Typed]) -> None:
    assert all_read(typed) == read


def test_a_command_that_is_none_is_answered_with_those_that_are() -> None:
    terminal, screen = made("/exprt\n")
    assert terminal.read() == Typed(command="/quit")
    assert "There is no command /exprt. Known: /quit, /help, /expert." in screen.getvalue()


def test_bytes_that_are_no_text_are_passed_over() -> None:
    screen = io.StringIO()
    keyboard = io.TextIOWrapper(io.BytesIO(b"a\xff\n\n"), encoding="utf-8")
    assert Terminal((), keyboard, screen).read().command == "/quit"
    assert "no UTF-8" in screen.getvalue()


@pytest.mark.parametrize(
    ("typed", "yes"), [("\n", True), ("y\n", True), ("YES\n", True), ("n\n", False), ("/quit\n", False), ("", False)]
)
def test_enter_alone_agrees(typed: str, yes: bool) -> None:
    assert made(typed)[0].agrees("Another?") is yes


def test_a_pipe_gets_plain_text_with_what_was_typed() -> None:
    terminal, screen = made("my reply\n\n")
    terminal.message("user", "[bold]asked[/bold]\nin two lines")
    terminal.read()
    terminal.numbers({"exact": 1.0, "score": 0.123456789})
    assert screen.getvalue().splitlines() == [
        "--- user ---",
        "[bold]asked[/bold]",
        "in two lines",
        "--- you ---",
        "my reply",
        "  exact  1",
        "  score  0.123457",
    ]


def test_a_message_cannot_repaint_the_screen() -> None:
    screen = io.StringIO()
    Terminal(keyboard=io.StringIO(), screen=screen).message("tool", "a\x1b[2J\x07\x9b\tb\r\nc\rd")
    assert screen.getvalue().endswith("a\\x1b[2J\\x07\\x9b        b\nc\\rd\n")


def test_without_a_keyboard_there_is_nothing_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)  # as where it is closed
    with pytest.raises(UserError, match="standard input is closed"):
        Terminal()
