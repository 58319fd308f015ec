"""A picture of a run while it is going: `live.png`, drawn again as numbers come, and a window where there is a display.

Neither may cost a run anything: a window that cannot be opened, or was closed, is done without.
"""

import io
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from slimrl.io.files import replace_file
from slimrl.monitor.plots import draw_training, load_series

FILE_NAME = "live.png"
EVERY_S = 3.0  # drawing takes half a second
DPI = 90


class Window:
    """Shows one picture after another. Made by `open_window`."""

    def __init__(self, tkinter: Any, title: str) -> None:
        self._tkinter = tkinter
        self._root = tkinter.Tk()
        self._root.title(title)
        self._label = tkinter.Label(self._root)
        self._label.pack()
        self._image: Any = None

    def show(self, picture: Path) -> bool:
        """False once the window has been closed."""
        try:
            self._image = self._tkinter.PhotoImage(master=self._root, file=str(picture))  # Tk itself keeps none
            self._label.configure(image=self._image)
            self._root.update()
        except self._tkinter.TclError:
            return False
        return True

    def wait(self) -> None:
        """Until it is closed."""
        self._root.mainloop()

    def close(self) -> None:
        try:
            self._root.destroy()
        except self._tkinter.TclError:
            return  # which somebody did before


def open_window(title: str, say: Callable[[str], None]) -> Window | None:
    """A window, or None and a word about why there is none: no display, or a Python without Tk."""
    try:
        import tkinter
    except ImportError as error:
        say(f"no window: this Python has no Tk ({error}).")
        return None
    try:
        return Window(tkinter, title)
    except tkinter.TclError as error:
        say(f"no window: {error}.")
        return None


class LivePlot:
    """A sink that draws RUN_DIR/live.png from the metrics on disk, at most every `EVERY_S` seconds, and at the end."""

    def __init__(
        self, run_dir: Path, window: Window | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._run_dir, self._window, self._clock = run_dir, window, clock
        self._drawn_s = -math.inf

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        if self._clock() - self._drawn_s >= EVERY_S:
            self._draw()
            self._drawn_s = self._clock()

    def close(self, failed: bool = False) -> None:
        """Draws what is there by now, and shuts the window."""
        if math.isfinite(self._drawn_s):
            self._draw()
        if self._window:
            self._window.close()

    def _draw(self) -> None:
        picture = self._run_dir / FILE_NAME
        draw_live(self._run_dir, picture)
        if self._window and not self._window.show(picture):
            self._window = None


def draw_live(run_dir: Path, picture: Path) -> None:
    """Draws everything that the run has numbers for; whoever looks at the file never sees half of it. Raises UserError
    if there is nothing to draw."""
    series = load_series(run_dir)
    drawn = io.BytesIO()
    draw_training(series, run_dir.resolve().name).savefig(drawn, format="png", dpi=DPI)
    replace_file(picture, [drawn.getvalue()])
