"""Pictures of training rewards, a small one for each algorithm or loss: mean and range of the seeds."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from slimrl.monitor.series import smooth

COLORS = ("#0072B2", "#E69F00", "#D55E00", "#CC79A7")  # Okabe and Ito's, which the colour-blind can tell apart
FAINT = "#BBBBBB"
COLUMNS = 4  # at most


def draw_each_on_all(summary: Mapping[str, Any], path: Path, title: str) -> None:
    """A panel for each line of `summary`, on the means of all."""
    figure, cells = _panels(summary, title)
    curves = {name: curves_of(row) for name, row in summary.items()}
    for axes, curves_SR in zip(cells, curves.values(), strict=True):
        for other_SR in curves.values():
            axes.plot(other_SR.mean(axis=0), color=FAINT, linewidth=0.7)
        _draw(axes, curves_SR, COLORS[0])
    _save(figure, path)


def draw_lines_of_each(lines: Mapping[str, Mapping[str, Any]], path: Path, title: str) -> None:
    """A panel for each entry of `lines`, with a line for each entry of that, named in the first."""
    figure, cells = _panels(lines, title)
    for axes, rows in zip(cells, lines.values(), strict=True):
        for (label, row), color in zip(rows.items(), COLORS, strict=False):
            _draw(axes, curves_of(row), color, label)
    cells[0].legend(frameon=False, fontsize=7.5)
    _save(figure, path)


def curves_of(row: Mapping[str, Any]) -> np.ndarray:
    """The seeds' training rewards, smoothed, (S, R); cut to the shortest."""
    curves = [smooth(np.array(run["curve"])) for run in row["runs"]]
    return np.array([curve[: min(map(len, curves))] for curve in curves])


def _panels(names: Iterable[str], title: str) -> tuple[Figure, list[Axes]]:
    names = list(names)
    columns = min(COLUMNS, len(names))
    rows = math.ceil(len(names) / columns)
    figure = Figure(figsize=(3.0 * columns, 2.2 * rows + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    cells = list(figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flat)
    for axes, name in zip(cells, names, strict=False):
        axes.set_title(name, loc="left", fontsize=9.5)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=7.5)
        axes.set_xlabel("step", fontsize=8)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    for k, unused in enumerate(cells[len(names) :], len(names)):
        unused.set_axis_off()
        cells[k - columns].tick_params(labelbottom=True)  # the lowest of its column
    return figure, cells[: len(names)]


def _draw(axes: Axes, curves_SR: np.ndarray, color: str, label: str | None = None) -> None:
    steps = np.arange(curves_SR.shape[1])
    axes.fill_between(steps, curves_SR.min(axis=0), curves_SR.max(axis=0), color=color, alpha=0.2, linewidth=0)
    axes.plot(steps, curves_SR.mean(axis=0), color=color, linewidth=1.8, label=label)


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
