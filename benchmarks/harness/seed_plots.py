"""Pictures of several seeds of one recipe: their rewards, and small plots of other metrics."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from slimrl.monitor.plots import BLUE, INK, draw_points, put_legend_below, save_figure, style_axes, style_held_out
from slimrl.monitor.series import Series, common_steps, load_series, smooth


def plot_runs(paths: Sequence[Path], output: Path, title: str, more: Sequence[str] = ()) -> None:
    """Plot several seeds of one recipe: the reward, and below it a small plot for each metric in `more`.

    `paths` are run directories. Thin lines are runs, the thick line is their mean, and the band reaches from the lowest
    to the highest; held-out points are means with bars of the same range. Steps that some run lacks are left out.
    """
    runs = [load_series(path) for path in paths]
    figure = Figure(figsize=(7.2, 6.2 if more else 4.2), layout="constrained")
    grid = figure.add_gridspec(2 if more else 1, max(1, len(more)), height_ratios=(2, 1) if more else None)
    axes = figure.add_subplot(grid[0, :])
    _draw_seeds(axes, runs, "reward/mean", f"training: mean and range of {len(runs)} seeds")
    # A mode of decoding that not every seed was evaluated in has no mean over the seeds.
    for name, look in style_held_out(runs[0]).items():
        if all(name in run for run in runs):
            steps, values_RS = common_steps([run[name] for run in runs])
            bounds = (values_RS.min(axis=0), values_RS.max(axis=0))
            draw_points(axes, (steps, values_RS.mean(axis=0)), bounds, look)
    style_axes(axes)
    axes.set_ylabel("reward", color=INK)
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold", color=INK)
    put_legend_below(axes)
    for column, name in enumerate(more):
        small = figure.add_subplot(grid[1, column])
        _draw_seeds(small, runs, name, "")
        style_axes(small)
        small.xaxis.set_major_locator(MaxNLocator(nbins=3, integer=True))
        small.set_title(name.partition("/")[2].replace("_", " "), loc="left", fontsize=9.5, color=INK)
    save_figure(figure, output)


def _draw_seeds(axes: Axes, runs: Sequence[Mapping[str, Series]], name: str, label: str) -> None:
    """Draw a metric of several runs: each run, their mean, and the band from lowest to highest."""
    smoothed = [(run[name][0], smooth(run[name][1])) for run in runs if name in run]
    if not smoothed:
        return
    steps, values_RS = common_steps(smoothed)
    for row in values_RS:
        axes.plot(steps, row, color=BLUE, linewidth=0.8, alpha=0.45)
    axes.plot(steps, values_RS.mean(axis=0), color=BLUE, linewidth=2.0, label=label)
    axes.fill_between(steps, values_RS.min(axis=0), values_RS.max(axis=0), color=BLUE, alpha=0.15, linewidth=0)
