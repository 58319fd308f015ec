"""Progress is one line on a terminal, and a line now and then elsewhere."""

import io
import sys

import pytest

from slimrl_search.services import progress
from slimrl_search.services.progress import ProgressLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(output: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a line prints that is told a text every second for 25 seconds."""
    clock = [0.0]
    monkeypatch.setattr(sys, "stderr", output)
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    line = ProgressLine()
    for second in range(1, 26):
        clock[0] = float(second)
        line.show(f"{line.seconds:.0f} s: {'x' * 500}")
    line.end()
    line.end()
    return output.getvalue()


def test_on_a_terminal_it_is_drawn_anew_and_never_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    text = shown(Terminal(), monkeypatch)
    assert text.count("\n") == 1 and text.endswith("\n")
    drawn = text.rstrip("\n").split("\r\x1b[2K")[1:]
    assert len(drawn) == 25 and all(len(one) == 39 for one in drawn)
    assert drawn[-1].startswith("25 s: x")


def test_elsewhere_a_line_follows_every_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(io.StringIO(), monkeypatch).splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["10", "20"]
