"""What is seen while the corpus and its index are built: lines in a log, one line in place on a terminal."""

import io
import sys
from pathlib import Path

import pytest

from slimrl.environments.wiki_search.progress import line_progress
from tests.environments.wiki_search.conftest import Made


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.slow
def test_the_build_is_reported_once_on_standard_error(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(data_dir=str(tmp_path / "new"))
    shown = capsys.readouterr()
    jobs = [line.partition(" · ")[0] for line in shown.err.splitlines()]
    assert jobs == ["writing the corpus: 100/100", "embedding titles: 100/100", "indexing titles: 100/100"]
    assert not shown.out
    made(data_dir=str(tmp_path / "new"))  # everything is there
    assert not capsys.readouterr().err


def test_a_log_has_a_line_for_each_quarter(capsys: pytest.CaptureFixture[str]) -> None:
    with line_progress("counting", 40) as bar:
        for _ in range(40):
            bar.advance()
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" · ")[0] for line in lines] == [f"counting: {done}/40" for done in (10, 20, 30, 40)]


def test_a_terminal_has_one_line_that_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with line_progress("waiting " * 20, 0), line_progress("counting", 2) as bar:
        bar.advance()
    first, *_, moved, _, last = [part for part in terminal.getvalue().split("\r") if part]
    assert first == ("waiting " * 20)[:79] and moved.startswith("counting: 1/2 · ")
    assert not last.strip() and "\n" not in terminal.getvalue()
