"""Provides a player's terminal. It shows messages as panels, and reads slash commands and replies of several lines.

If the output is a pipe or a file, the terminal prints plain text without control characters. Input that is not typed by
hand is printed, too, so that a log is complete.
"""

import contextlib
import sys
from collections.abc import Callable, Mapping

from rich.panel import Panel
from rich.text import Text

from slimrl.errors import UserError, visible
from slimrl.monitor.console import RunConsole

with contextlib.suppress(ImportError):  # some builds of Python lack readline
    import readline  # noqa: F401  # its import alone gives `input` line editing with the arrow keys

QUIT = "/quit"
COLOURS = {"system": "magenta", "user": "cyan", "tool": "yellow", "you": "green"}


class Terminal:
    """The screen and keyboard of one person.

    Raises:
        UserError: if standard input is closed.
    """

    def __init__(self) -> None:
        if sys.stdin is None:
            raise UserError("there is no keyboard to read from: standard input is closed.")
        self._console = RunConsole()
        self._typed_by_hand = sys.stdin.isatty()

    def note(self, text: str, style: str = "") -> None:
        """Print a text that is not part of the episode."""
        self._console.note(text, style)

    def message(self, role: str, text: str) -> None:
        """Print a message with its role as the title."""
        if not self._console.is_live:
            self._console.note(f"--- {role} ---\n{text}")
            return
        body = Text(visible(text), no_wrap=False, overflow="fold")
        self._console.show(Panel(body, title=role, title_align="left", border_style=COLOURS.get(role, "blue")))

    def read(self, actions: Mapping[str, Callable[[], object]]) -> str | None:
        """Read a reply, which ends at an empty line or Ctrl-D. Return None after `/quit` and at the end of the input.

        A line with a command in `actions` runs this command, and discards the lines of the reply before it. A person
        who wants to start a reply with a slash must type two slashes.
        """
        lines: list[str] = []
        while (line := self._line("... " if lines else "> ")) is not None or lines:
            word = (line or "").strip()
            # A command is also recognised within a reply: otherwise `/quit` would be sent to the environment.
            if word == QUIT:
                return None
            if word in actions:
                lines.clear()
                actions[word]()
            elif not lines and word.startswith("/") and not word.startswith("//"):
                known = ", ".join([QUIT, *actions])
                self.note(f"There is no command {word:.40}. Known: {known}. A slash that is text: type two.", "yellow")
            elif line and word:
                # Keep one slash of a doubled slash at the start of a reply.
                lines.append(line[1:] if not lines and line.startswith("//") else line)
            elif lines:
                reply = "\n".join(lines)
                if not self._typed_by_hand:  # a typed reply is on the screen already
                    self.message("you", reply)
                return reply
        return None

    def agrees(self, question: str) -> bool:
        """Ask a question, and return True if the person answers yes. Enter alone means yes; the end of the input means
        no."""
        self.note(f"{question} (Enter for yes, n for no)")
        line = self._line("[Y/n] ")
        return line is not None and line.strip().lower() in ("", "y", "yes")

    def _line(self, prompt: str) -> str | None:
        """Return one line, or None at the end of the input. Characters that cannot be encoded as UTF-8 are replaced."""
        try:
            line = input(prompt if self._typed_by_hand else "")
        except EOFError:
            if self._typed_by_hand:
                self._console.note("")  # ends the line of the prompt
            return None
        except UnicodeDecodeError:
            self.note("That was no UTF-8, and was passed over.", "yellow")
            return self._line(prompt)
        return line.rstrip("\r\n").encode("utf-8", "replace").decode()
