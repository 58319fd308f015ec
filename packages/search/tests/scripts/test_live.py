"""The picture of a run that is going. The window is tested where there is a display."""

import os
from pathlib import Path

import pytest

from slimrl.monitor.sinks import JsonlSink, Monitor
from slimrl_search.scripts.live import EVERY_S, LivePlot, open_window

PNG = b"\x89PNG"


def test_the_picture_is_drawn_at_once_then_now_and_then_and_at_the_end(tmp_path: Path):
    now = [0.0]
    picture, drawn = tmp_path / "live.png", []
    with Monitor([JsonlSink(tmp_path / "metrics.jsonl"), LivePlot(tmp_path, clock=lambda: now[0])]) as monitor:
        for step in range(4):
            monitor.log(step, {"reward/mean": step / 10})
            drawn.append(picture.read_bytes())
            now[0] += EVERY_S / 2
    assert all(content.startswith(PNG) for content in drawn)
    assert drawn[0] == drawn[1] != drawn[2] == drawn[3] != picture.read_bytes()
    assert [path.name for path in tmp_path.iterdir() if "new" in path.name] == []


def test_a_run_that_failed_before_its_first_number_leaves_no_picture(tmp_path: Path):
    LivePlot(tmp_path).close(failed=True)
    assert list(tmp_path.iterdir()) == []


def test_without_a_display_there_is_a_word_and_no_window(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    said: list[str] = []
    assert open_window("run", said.append) is None
    assert said[0].startswith("no window: ")


def test_a_window_shows_the_picture_and_may_be_closed(tmp_path: Path):
    if not os.environ.get("DISPLAY"):
        pytest.skip("there is no display")
    window = open_window("run", print)
    assert window is not None
    with Monitor([JsonlSink(tmp_path / "metrics.jsonl")]) as monitor:
        monitor.log(0, {"reward/mean": 0.5})
    live = LivePlot(tmp_path, window)
    live.write(0, {})
    window.close()
    assert not window.show(tmp_path / "live.png")
    live.close()
