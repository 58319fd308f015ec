"""Plots a run from its metrics.jsonl: reward.png, and training.png with other important metrics.

The plots use matplotlib's object API with the backend Agg, which needs no display and has no global state. The colours
(Okabe and Ito 2008) suit colour-blind readers.
"""

import itertools
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from slimrl.io.files import explain_write_errors
from slimrl.monitor.metrics import select_held_out_rewards
from slimrl.monitor.panels import PANELS, Panel
from slimrl.monitor.series import Series, load_series, smooth

BLUE, ORANGE, GREEN, INK, FAINT = "#0072B2", "#D55E00", "#009E73", "#333333", "#E4E4E4"
HELD_OUT_LOOKS = ((ORANGE, "o"), (GREEN, "s"), ("#CC79A7", "^"), ("#E69F00", "D"), ("#56B4E9", "v"))
FEW = 12  # a series with fewer points has a marker at each point
MAX_OWN = 6  # panels for metrics of the environment


def plot_run(run_dir: Path) -> list[Path]:
    """Write RUN_DIR/training.png, and RUN_DIR/reward.png if the run has rewards. Return the paths."""
    series = load_series(run_dir)
    written = [save_figure(draw_training(series, run_dir.resolve().name), run_dir / "training.png")]
    if has_reward(series):
        written.append(save_figure(draw_reward(series, run_dir.resolve().name), run_dir / "reward.png"))
    return written


def draw_reward(series: Mapping[str, Series], title: str) -> Figure:
    """Draw a run's learning curve: the training reward with its standard deviation, and the held-out rewards with
    confidence intervals."""
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.add_subplot()
    _draw_reward(axes, series)
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold", color=INK)
    put_legend_below(axes)
    return figure


def choose_panels(series: Mapping[str, Series]) -> list[Panel]:
    """Return the panels that have a metric in `series`, and a panel for each environment metric (`env/...`) that is not
    constant, up to `MAX_OWN`."""
    own = [name for name in sorted(series) if name.startswith("env/") and len(set(series[name][1].tolist())) > 1]
    panels = [panel for panel in PANELS if any(name in series for name in panel.names)]
    return panels + [Panel(name, (name,)) for name in own[:MAX_OWN]]


def draw_training(series: Mapping[str, Series], title: str) -> Figure:
    """Draw a grid of panels: the reward, then the panels of `choose_panels`."""
    panels = choose_panels(series)
    num = len(panels) + has_reward(series)  # one more panel for the reward
    columns = min(3, max(1, num))
    rows = math.ceil(num / columns)
    figure = Figure(figsize=(4.2 * columns, 2.7 * rows + 0.3), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)
    cells = iter(figure.subplots(rows, columns, squeeze=False).flat)
    if has_reward(series):
        axes = next(cells)
        _draw_reward(axes, series)
        axes.set_title("reward", loc="left", fontsize=9.5, color=INK)
        axes.legend(frameon=False, fontsize=6.5, ncols=2, loc="lower right")
    for panel in panels:
        _draw_panel(next(cells), series, panel)
    # The grid is filled row by row; the last row may have empty cells.
    for unused in cells:
        unused.set_axis_off()
    return figure


def has_reward(series: Mapping[str, Series]) -> bool:
    """Return True if a run has rewards, in training or held-out."""
    return "reward/mean" in series or bool(select_held_out_rewards(series))


def style_held_out(series: Mapping[str, Series]) -> dict[str, tuple[str, str, str]]:
    """Return the held-out rewards of a run, each with its label, colour and marker."""
    looks = zip(sorted(select_held_out_rewards(series)), itertools.cycle(HELD_OUT_LOOKS), strict=False)
    return {name: (name.replace("held_out/reward_", "held-out, ").replace("_", " "), *look) for name, look in looks}


def _draw_reward(axes: Axes, series: Mapping[str, Series]) -> None:
    if "reward/mean" in series:
        steps, mean = series["reward/mean"]
        # If only some steps have a standard deviation, omit the band, because its edges would belong to other steps.
        if "reward/std" in series and len(series["reward/std"][1]) == len(mean):
            middle, spread = (_smooth_long(values) for values in (mean, series["reward/std"][1]))
            label = "± 1 std of rollouts"
            axes.fill_between(steps, middle - spread, middle + spread, color=BLUE, alpha=0.10, linewidth=0, label=label)
        _draw_line(axes, (steps, mean), BLUE, "training", width=2.0)
    for name, look in style_held_out(series).items():
        # Without bounds, the error bars have length 0.
        low, high = (series.get(f"{name}_{end}", series[name])[1] for end in ("low", "high"))
        draw_points(axes, series[name], (low, high), look)
    style_axes(axes)
    axes.set_ylabel("reward", color=INK)


def _smooth_long(values: np.ndarray) -> np.ndarray:
    return values if len(values) < FEW else smooth(values)


def _draw_line(
    axes: Axes, series: Series, colour: str, label: str, width: float = 1.6, is_smoothed: bool = True
) -> None:
    steps, values = series
    is_short = len(values) < FEW
    if not is_short and is_smoothed:
        axes.plot(steps, values, color=colour, linewidth=0.8, alpha=0.4)
    shown, marker = _smooth_long(values) if is_smoothed else values, "o" if is_short else ""
    axes.plot(steps, shown, color=colour, linewidth=width, marker=marker, markersize=3.5, label=label)


def draw_points(axes: Axes, series: Series, bounds: Series, look: tuple[str, str, str], line: str = ":") -> None:
    """Draw points with error bars. `bounds` are the lower and the upper limits of the bars. `look` is (label, colour,
    marker). `line` is the style of the line between the points."""
    steps, values = series
    label, colour, marker = look
    # Because of rounding, a bound may lie on the wrong side of the mean; errorbar refuses negative lengths.
    bars = np.maximum(0.0, [values - bounds[0], bounds[1] - values])
    axes.errorbar(
        steps, values, bars, color=colour, marker=marker, markersize=4, capsize=3, linewidth=1.2, linestyle=line,
        elinewidth=1.4, label=label, zorder=4,
    )  # fmt: skip


def _draw_panel(axes: Axes, series: Mapping[str, Series], panel: Panel) -> None:
    is_log = panel.log and any((series[name][1] > 0).any() for name in panel.names if name in series)
    for name, colour in zip(panel.names, (BLUE, ORANGE), strict=False):
        if name not in series:
            continue
        steps, values = series[name]
        # A logarithmic axis cannot show 0 or less: such points become gaps.
        values = np.where(values > 0, values, np.nan) if is_log else values
        _draw_line(axes, (steps, values), colour, name, is_smoothed=not panel.exact)
    if is_log:
        axes.set_yscale("log")
        axes.tick_params(which="minor", labelsize=7, colors="#555555")
    elif panel.exact:
        axes.yaxis.set_major_formatter("{x:.1e}")
    if len(panel.names) > 1:
        axes.legend(frameon=False, fontsize=7.5)
    style_axes(axes)
    axes.set_title(panel.title, loc="left", fontsize=9.5, color=INK)


def style_axes(axes: Axes) -> None:
    """Apply the style that all plots share, with `step` on the x axis."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#999999")
    axes.tick_params(colors="#555555", labelsize=8)
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.02)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    steps = {step for line in axes.lines for step in np.asarray(line.get_xdata()).tolist()}
    if len(steps) == 1:  # otherwise the locator adds fractions of a step
        axes.set_xticks([*steps])
    axes.set_xlabel("step", fontsize=8.5, color=INK)


def put_legend_below(axes: Axes) -> None:
    """Put the legend below the axes, if it has entries."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8.5, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.14))


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure, creating missing directories, and return the path. Raise UserError if it cannot be written."""
    FigureCanvasAgg(figure)
    with explain_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=160)
    return path
