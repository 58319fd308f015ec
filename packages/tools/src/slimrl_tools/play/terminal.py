"""The module is the terminal of a person who plays: messages are panels, a reply has several lines, commands a slash.

In a pipe or a log file it prints plain text without control characters, and repeats the input so that the log is
complete. It knows nothing of environments.
"""

import contextlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from rich.panel import Panel
from rich.text import Text

from slimrl.errors import UserError, visible
from slimrl.monitor.console import RunConsole

with contextlib.suppress(ImportError):  # some builds of Python lack it
    import readline  # noqa: F401  # its import alone gives `input` line editing with the arrow keys

QUIT, HELP = "/quit", "/help"
COLOURS = {"system": "magenta", "user": "cyan", "tool": "yellow", "you": "green"}


@dataclass(frozen=True, slots=True)
class Typed:
    """The input of a person: the text of a reply, or a command such as `/quit`, and then no text."""

    text: str = ""
    command: str = ""


class Terminal:
    """The screen and keyboard of one person. `commands` are accepted besides `/quit` and `/help`.

    Raises:
        UserError: if standard input is closed.
    """

    def __init__(
        self, commands: Sequence[str] = (), keyboard: TextIO | None = None, screen: TextIO | None = None
    ) -> None:
        if keyboard is None and sys.stdin is None:
            raise UserError("there is no keyboard to read from: standard input is closed.")
        self._keyboard = keyboard or sys.stdin
        self._console = RunConsole(screen)
        self._commands = (QUIT, HELP, *commands)
        self._typed_by_hand = self._keyboard.isatty()
        # `input` edits lines only between the real keyboard and the real screen.
        self._edits_lines = self._typed_by_hand and self._keyboard is sys.stdin and screen is None

    def note(self, text: str, style: str = "") -> None:
        """Print a line of the program itself."""
        self._console.note(text, style)

    def message(self, role: str, text: str) -> None:
        """Print a message under its role."""
        if not self._console.is_live:
            self._console.note(f"--- {role} ---\n{text}")
            return
        body = Text(visible(text), no_wrap=False, overflow="fold")
        self._console.show(Panel(body, title=role, title_align="left", border_style=COLOURS.get(role, "blue")))

    def numbers(self, values: Mapping[str, float]) -> None:
        """Print named numbers, one a line."""
        width = max(map(len, values), default=0)
        for name, value in values.items():
            self.note(f"  {name:<{width}}  {value:.6g}")

    def read(self) -> Typed:
        """Read a reply, whose lines end with an empty one or Ctrl-D, or a command; at the end of the input, `/quit`.

        A command may stand on any line of its own; the lines of a reply before it are discarded. A reply that begins
        with a slash is typed with two.
        """
        lines: list[str] = []
        while True:
            line = self._line("... " if lines else "> ")
            if line is None:
                return self._echo_reply("\n".join(lines)) if lines else Typed(command=QUIT)
            # A command counts even amid a reply: otherwise `/quit` would be sent to the environment.
            word = line.strip()
            if word in self._commands:
                return Typed(command=word)
            if not lines and word.startswith("/") and not word.startswith("//"):
                known = ", ".join(self._commands)
                self.note(f"There is no command {word:.40}. Known: {known}. A slash that is text: type two.", "yellow")
            elif word:
                # Of a doubled slash at the beginning of a reply one is text.
                lines.append(line[1:] if not lines and line.startswith("//") else line)
            elif lines:
                return self._echo_reply("\n".join(lines))

    def agrees(self, question: str) -> bool:
        """Whether the person answers yes to a question; Enter alone means yes, the end of the input no."""
        self.note(f"{question} (Enter for yes, n for no)")
        line = self._line("[Y/n] ")
        return line is not None and line.strip().lower() in ("", "y", "yes")

    def _echo_reply(self, text: str) -> Typed:
        """The reply, which is printed too unless the person has seen it while typing."""
        if not self._typed_by_hand:
            self.message("you", text)
        return Typed(text)

    def _line(self, prompt: str) -> str | None:
        """One line, or None at the end of the input. The result can always be encoded as UTF-8."""
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
            self._console.note("")  # ends the line of the prompt
            return None
        except UnicodeDecodeError:
            self.note("That was no UTF-8, and was passed over.", "yellow")
            return self._line(prompt)
        return line.rstrip("\r\n").encode("utf-8", "replace").decode()
