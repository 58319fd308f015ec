"""Plots a run during training. Writes `live.png`, and a page that reloads this picture every few seconds."""

import io
import math
import os
import sys
import time
import webbrowser
from collections.abc import Callable, Mapping
from pathlib import Path

from slimrl.io.files import replace_file
from slimrl.monitor.plots import draw_training
from slimrl.monitor.series import load_series

FILE_NAME, PAGE_NAME = "live.png", "live.html"
EVERY_S = 3.0  # seconds between two pictures; drawing takes half a second
DPI = 90
PAGE = f'<!doctype html><meta http-equiv="refresh" content="{EVERY_S:.0f}"><title>{{}}</title><img src="{FILE_NAME}">\n'


def show(file: Path, report: Callable[[str], None]) -> None:
    """Open a picture or a page in the desktop's viewer. Without a display, call `report` with the reason."""
    # Without a display, Python would start a text browser, which takes over the terminal.
    has_display = sys.platform != "linux" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if not (has_display and webbrowser.open(file.resolve().as_uri())):
        report(f"no window: there is no display or no viewer; the picture is {file}.")


class LivePlot:
    """A sink that draws RUN_DIR/live.png from the metrics on disk, at most every `EVERY_S` seconds and on close.

    After the first picture it opens RUN_DIR/live.html, which shows the picture. If no viewer can open the page,
    `report` is called.
    """

    def __init__(
        self, run_dir: Path, report: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._run_dir, self._report, self._clock = run_dir, report, clock
        self._drawn_s = -math.inf

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Draw the plot unless the last picture is newer than `EVERY_S` seconds."""
        if self._clock() - self._drawn_s < EVERY_S:
            return
        self._draw()
        if not math.isfinite(self._drawn_s):
            replace_file(self._run_dir / PAGE_NAME, [PAGE.format(self._run_dir.name).encode()])
            show(self._run_dir / PAGE_NAME, self._report)
        self._drawn_s = self._clock()  # read the clock again, because the interval starts when the picture is done

    def close(self, failed: bool = False) -> None:
        """Draw the run's final state, if a picture was drawn before."""
        if math.isfinite(self._drawn_s):
            self._draw()

    def _draw(self) -> None:
        drawn = io.BytesIO()  # in memory first, because `savefig` writes a file piece by piece
        figure = draw_training(load_series(self._run_dir), self._run_dir.resolve().name)
        figure.savefig(drawn, format="png", dpi=DPI)
        replace_file(self._run_dir / FILE_NAME, [drawn.getvalue()])
