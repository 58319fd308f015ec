"""The module plots a run during training, in `live.png` and, on a machine with a display, in a window.

Neither may disturb the run: it continues if the window cannot be opened, or has been closed.
"""

import io
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from slimrl.io.files import replace_file
from slimrl.monitor.plots import draw_training
from slimrl.monitor.series import load_series

FILE_NAME = "live.png"
EVERY_S = 3.0  # drawing takes half a second
DPI = 90


class Window:
    """A window that shows one picture after another; `open_window` makes it."""

    def __init__(self, tkinter: Any, title: str) -> None:
        self._tkinter = tkinter
        self._root = tkinter.Tk()
        self._root.title(title)
        self._label = tkinter.Label(self._root)
        self._label.pack()
        self._image: Any = None

    def show(self, picture: Path) -> bool:
        """Show a picture; return False if the window has been closed."""
        try:
            # Kept in an attribute: Tk holds no reference, and a collected image would vanish from the window.
            self._image = self._tkinter.PhotoImage(master=self._root, file=str(picture))
            self._label.configure(image=self._image)
            self._root.update()
        except self._tkinter.TclError:
            return False
        return True

    def wait(self) -> None:
        """Wait until the user closes the window."""
        self._root.mainloop()

    def close(self) -> None:
        """Close the window."""
        try:
            self._root.destroy()
        except self._tkinter.TclError:
            return  # the user has closed it already


def open_window(title: str, say: Callable[[str], None]) -> Window | None:
    """Return a new window. Without a display or Tk, call `say` with the reason and return None."""
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
    """The sink that draws RUN_DIR/live.png from the metrics on disk, at most every `EVERY_S` seconds and on close."""

    def __init__(
        self, run_dir: Path, window: Window | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._run_dir, self._window, self._clock = run_dir, window, clock
        self._drawn_s = -math.inf

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Draw the plot again if the last one is old enough."""
        if self._clock() - self._drawn_s >= EVERY_S:
            self._draw()
            self._drawn_s = self._clock()  # read again, because the interval starts when the picture is done

    def close(self, failed: bool = False) -> None:
        """Draw the run's last state and close the window."""
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
    """Draw all panels for which the run has metrics. The file is replaced at once, so a viewer never sees half of it.

    Raises:
        UserError: if the run has no metrics yet.
    """
    series = load_series(run_dir)
    drawn = io.BytesIO()  # in memory first, as `savefig` writes a file piece by piece
    draw_training(series, run_dir.resolve().name).savefig(drawn, format="png", dpi=DPI)
    replace_file(picture, [drawn.getvalue()])
