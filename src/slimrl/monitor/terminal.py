"""What a person who plays sees and types: messages as panels, a reply of several lines, commands with a slash.

Where there is no terminal, in a pipe or a log file, it is plain text without control characters, and what is typed is
repeated so that the whole can be read. Knows nothing of environments: it is told what to show.
"""

import contextlib
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from rich.panel import Panel
from rich.text import Text

from slimrl.errors import UserError
from slimrl.monitor.console import RunConsole

with contextlib.suppress(ImportError):  # some builds of Python have none
    import readline  # noqa: F401  # merely by being imported it lets `input` edit the line, with the arrow keys

QUIT, HELP = "/quit", "/help"
# All but the tab and the end of a line: a page or a model could otherwise repaint the screen.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
COLOURS = {"system": "magenta", "user": "cyan", "tool": "yellow", "you": "green"}


@dataclass(frozen=True, slots=True)
class Typed:
    """What a person typed: a reply, or one of the commands, such as `/quit`, and then no text."""

    text: str = ""
    command: str = ""


class Terminal:
    """The screen and the keyboard of one person. `commands` are known beside `/quit` and `/help`."""

    def __init__(
        self, commands: Sequence[str] = (), keyboard: TextIO | None = None, screen: TextIO | None = None
    ) -> None:
        if keyboard is None and sys.stdin is None:
            raise UserError("there is no keyboard to read from: standard input is closed.")
        self._keyboard = keyboard or sys.stdin
        self._console = RunConsole(screen)
        self._commands = (QUIT, HELP, *commands)
        self._typed_by_hand = self._keyboard.isatty()
        self._edits_lines = self._typed_by_hand and self._keyboard is sys.stdin and screen is None

    def note(self, text: str, style: str = "") -> None:
        """A line of the program's own."""
        self._console.note(printable(text), style)

    def message(self, role: str, text: str) -> None:
        """Something that was said, under the name of who said it."""
        text = printable(text)
        if not self._console.is_live:
            self._console.note(f"--- {role} ---\n{text}")
            return
        body = Text(text, no_wrap=False, overflow="fold")
        self._console.show(Panel(body, title=role, title_align="left", border_style=COLOURS.get(role, "blue")))

    def numbers(self, values: Mapping[str, float]) -> None:
        """Named numbers, one a line."""
        width = max(map(len, values), default=0)
        for name, value in values.items():
            self.note(f"  {name:<{width}}  {value:.6g}")

    def read(self) -> Typed:
        """A reply: lines up to an empty one, or to Ctrl-D; `/quit` if there is nothing more to come.

        A command acts on any line of its own, and what was typed of a reply is forgotten. A reply that is to begin with
        a slash begins with two.
        """
        lines: list[str] = []
        while True:
            line = self._line("... " if lines else "> ")
            if line is None:
                return self._echo_reply("\n".join(lines)) if lines else Typed(command=QUIT)
            word = line.strip()
            if word in self._commands:
                return Typed(command=word)
            if not lines and word.startswith("/") and not word.startswith("//"):
                known = ", ".join(self._commands)
                self.note(f"There is no command {word:.40}. Known: {known}. A slash that is text: type two.", "yellow")
            elif word:
                lines.append(line[1:] if not lines and line.startswith("//") else line)
            elif lines:
                return self._echo_reply("\n".join(lines))

    def agrees(self, question: str) -> bool:
        """Whether the person says yes to a question; Enter alone is yes, and the end of the input no."""
        self.note(question)
        line = self._line("[Y/n] ")
        return line is not None and line.strip().lower() in ("", "y", "yes")

    def _echo_reply(self, text: str) -> Typed:
        if not self._typed_by_hand:
            self.message("you", text)
        return Typed(text)

    def _line(self, prompt: str) -> str | None:
        """One line, None for the end of the input. Whatever bytes come, the result can be written as UTF-8."""
        try:
            if self._edits_lines:
                line = input(prompt)
            else:
                if self._typed_by_hand:
                    self._console.note(prompt.rstrip())
                line = self._keyboard.readline()
                if not line:
                    return None
        except EOFError:
            self._console.note("")  # the prompt stands there without an end of line
            return None
        except UnicodeDecodeError:
            self.note("That was no UTF-8, and was passed over.", "yellow")
            return self._line(prompt)
        return line.rstrip("\r\n").encode("utf-8", "replace").decode()


def printable(text: str) -> str:
    """The text with control characters spelt out.

    >>> printable("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    return CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text.replace("\r\n", "\n"))
