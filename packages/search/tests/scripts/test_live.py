"""The picture of a run that is going, and how it is shown."""

from pathlib import Path

import pytest

from slimrl.monitor.sinks import JsonlSink, Monitor
from slimrl_search.scripts import live
from slimrl_search.scripts.live import EVERY_S, LivePlot, show

PNG = b"\x89PNG"


def test_the_picture_is_drawn_at_once_then_now_and_then_and_at_the_end(tmp_path: Path, monkeypatch):
    LivePlot(tmp_path, print).close(failed=True)  # of a run without a number
    assert list(tmp_path.iterdir()) == []
    now, shown = [0.0], list[Path]()
    monkeypatch.setattr(live, "show", lambda file, say: shown.append(file))
    picture, drawn = tmp_path / "live.png", []
    with Monitor([JsonlSink(tmp_path / "metrics.jsonl"), LivePlot(tmp_path, print, lambda: now[0])]) as monitor:
        for step in range(4):
            monitor.log(step, {"reward/mean": step / 10})
            drawn.append(picture.read_bytes())
            now[0] += EVERY_S / 2
    assert all(content.startswith(PNG) for content in drawn)
    assert drawn[0] == drawn[1] != drawn[2] == drawn[3] != picture.read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"metrics.jsonl", "live.png", "live.html"}
    assert shown == [tmp_path / "live.html"] and '<img src="live.png">' in shown[0].read_text()


@pytest.mark.parametrize(("display", "opens", "num_said"), [("", True, 1), (":0", False, 1), (":0", True, 0)])
def test_a_file_is_opened_where_there_is_a_display(display: str, opens: bool, num_said: int, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("webbrowser.open", lambda address: opens and address.startswith("file://"))
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    said: list[str] = []
    show(tmp_path / "live.png", said.append)
    assert len(said) == num_said and all(text.startswith("no window: ") for text in said)
