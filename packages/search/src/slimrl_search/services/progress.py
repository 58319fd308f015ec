"""One line on standard error says how far something is."""

import shutil
import sys
import time

from slimrl.errors import visible
from slimrl.io.cache import say

# On a terminal the line is drawn anew, elsewhere another one follows now and then.
TERMINAL_EVERY_S, FILE_EVERY_S = 0.2, 10.0


class ProgressLine:
    """A line that changes. `end` leaves it as it was shown last, and must be called before anything else is printed."""

    def __init__(self) -> None:
        self.began = self._shown = time.monotonic()
        self._redraws = sys.stderr.isatty()
        self._is_open = False

    @property
    def seconds(self) -> float:
        """The time since the line began."""
        return time.monotonic() - self.began

    def show(self, text: str) -> None:
        """Show the text, unless another was shown just before."""
        if time.monotonic() - self._shown < (TERMINAL_EVERY_S if self._redraws else FILE_EVERY_S):
            return
        self._shown = time.monotonic()
        if not self._redraws:
            say(text)
            return
        width = shutil.get_terminal_size().columns - 1
        # To the line's beginning, and clear it: what was there may have been longer.
        print(f"\r\x1b[2K{visible(text)[:width]}", end="", file=sys.stderr, flush=True)
        self._is_open = True

    def end(self) -> None:
        """Leave the line."""
        if self._is_open:
            say("")
        self._is_open = False
