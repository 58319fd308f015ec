"""Progress of the one-time build of a corpus and its index, as plain lines on standard error."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from slimrl.errors import visible
from slimrl.io.cache import say
from slimrl.monitor.console import format_clock

LINE = 79  # characters of a line that is rewritten in place; a longer one would wrap, and could not be


@contextmanager
def line_progress(description: str, total: int) -> Iterator["LineBar"]:
    """A bar for one job. `total` is 0 where nobody knows it, as while waiting for another process."""
    bar = LineBar(description, total)
    try:
        yield bar
    finally:
        bar.close()


class LineBar:
    """A bar without a display. On a terminal one line is rewritten; elsewhere each quarter done is a line."""

    def __init__(self, description: str, total: int) -> None:
        self._description, self._total = description, total
        self._done, self._began = 0, time.monotonic()
        self._is_live = sys.stderr.isatty()
        if self._is_live:
            self._rewrite(description)

    def advance(self, count: int = 1) -> None:
        """Counts work as done, and shows it."""
        before, self._done = self._done, self._done + count
        spent = time.monotonic() - self._began
        left = spent / self._done * (self._total - self._done) if self._done else 0.0
        clock = f"{format_clock(left)} left" if left > 0 else format_clock(spent)
        text = f"{self._description}: {self._done}/{self._total} · {clock}"
        if self._is_live:
            self._rewrite(text)
        elif self._done * 4 // max(1, self._total) > before * 4 // max(1, self._total):
            say(text)

    def close(self) -> None:
        """Takes the line off the terminal."""
        if self._is_live:
            self._rewrite("")

    def _rewrite(self, text: str) -> None:
        # Spaces cover what is left of a longer line. The last return leaves the cursor where other output begins.
        print(f"\r{visible(text)[:LINE]:<{LINE}}", end="\r", file=sys.stderr, flush=True)
