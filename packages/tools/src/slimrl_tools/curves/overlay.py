"""Plots the metrics of one or several runs. Runs that differ only in their seeds are drawn as one band.

`slimrl plot` and `scripts/plot_metrics.py` use this module, which writes only the requested picture.
"""

import json
import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from slimrl.config.reading.saved import NO_RECIPE, flat_settings, read_run_config
from slimrl.errors import UserError, nearest
from slimrl.io.run_dir import RunDir
from slimrl.monitor.metrics import select_held_out_rewards
from slimrl.monitor.plots import (
    BLUE,
    FEW,
    GREEN,
    INK,
    ORANGE,
    draw_points,
    draw_training,
    save_figure,
    style_axes,
)
from slimrl.monitor.series import Series, common_steps, load_series, smooth

COLOURS = (BLUE, ORANGE, GREEN, "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vP*"
PICTURE = "metrics.png"  # the picture of one run, in the run's directory


@dataclass(frozen=True, slots=True)
class Group:
    """A group of runs that differ only in their seeds. `label` is its name. Each run maps metric names to series."""

    label: str
    runs: Sequence[Mapping[str, Series]]


def plot_runs(run_dirs: Sequence[Path], output: Path, metrics: Sequence[str] = ()) -> None:
    """Draw runs with `draw_runs`, and write the picture to `output`, whose suffix selects the format. Raises UserError
    for a run without metrics, for a metric that no run has, and for a file that cannot be written."""
    figure = draw_runs(run_dirs, metrics)
    kinds = FigureCanvasAgg(figure).get_supported_filetypes()
    if output.suffix.removeprefix(".").lower() not in kinds:
        known = ", ".join(sorted(kinds))
        raise UserError(f"--output {output} does not end in a format of pictures, such as `.png`. Known: {known}.")
    save_figure(figure, output)


def draw_runs(run_dirs: Sequence[Path], metrics: Sequence[str] = ()) -> Figure:
    """Return a figure of the `metrics`. By default, draw one run's training plot, or the rewards of several runs.
    Raises UserError for a run without metrics, and for a metric that no run has."""
    groups = group_runs(run_dirs)
    known = {name for group in groups for run in group.runs for name in run}
    for name in metrics:
        if name not in known:
            raise UserError(f"no run has the metric `{name}`.{nearest(name, known)}")
    if len(run_dirs) == 1 and not metrics:
        return draw_training(groups[0].runs[0], groups[0].label)
    shown = metrics or _default_metrics(known)
    columns = min(3, len(shown))
    rows = math.ceil(len(shown) / columns)
    figure = Figure(figsize=(max(7.2, 4.4 * columns), 3.1 * rows + 0.5), layout="constrained")
    cells = iter(figure.subplots(rows, columns, squeeze=False).flat)
    handles = {}
    for name in shown:
        axes = next(cells)
        for number, group in enumerate(groups):
            _draw_group(axes, group, name, number)
        style_axes(axes)
        axes.set_title(name, loc="left", fontsize=9.5, color=INK)
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles[label] = handle
    for unused in cells:
        unused.set_axis_off()
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=4, frameon=False)
    return figure


def group_runs(run_dirs: Sequence[Path]) -> list[Group]:
    """Group runs whose settings are equal except for the seed, and name each group by its first run. The groups keep
    the order of `run_dirs`. A run without a config.toml is a group of its own."""
    by_key: dict[str, list[Path]] = {}
    for run_dir in map(Path.resolve, run_dirs):
        by_key.setdefault(_group_key(run_dir), []).append(run_dir)
    # Labels omit the directories that all paths have in common.
    common = os.path.commonpath([paths[0].parent for paths in by_key.values()])
    return [
        Group(str(paths[0].relative_to(common)), [load_series(path) for path in paths]) for paths in by_key.values()
    ]


def _group_key(run_dir: Path) -> str:
    if not RunDir(run_dir).settings.is_file():
        return str(run_dir)
    config = read_run_config(run_dir)
    settings = {key: value for key, value in flat_settings(config).items() if not NO_RECIPE.fullmatch(key)}
    return json.dumps([config.command, settings], sort_keys=True, default=str)


def _default_metrics(known: Collection[str]) -> list[str]:
    """Return the rewards among the names of metrics, or without rewards the supervised losses."""
    rewards = [name for name in ("reward/mean", *sorted(select_held_out_rewards(known))) if name in known]
    if found := rewards or [name for name in ("sft/loss", "sft/val_loss") if name in known]:
        return found
    raise UserError(f"no run has a reward. Name a metric with `--metric`: {', '.join(sorted(known))}.")


def _draw_group(axes: Axes, group: Group, name: str, number: int) -> None:
    """Draw the metric `name` of a group: faint lines for the values, a thick line for their smoothed mean, and a band
    for the range of several runs. Few points are drawn as markers with intervals. `number` selects the colour and the
    marker."""
    having = [run for run in group.runs if name in run]
    if not having:
        return
    label = f"{group.label} ({len(group.runs)} runs)" if len(group.runs) > 1 else group.label
    colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
    steps, values_RS = common_steps([run[name] for run in having])
    if len(steps) < FEW:
        low, high = values_RS.min(axis=0), values_RS.max(axis=0)
        if len(having) == 1:  # the run's own interval, if it has one
            low, high = (having[0].get(f"{name}_{end}", having[0][name])[1] for end in ("low", "high"))
        line = ":" if name.startswith("held_out/") else "-"
        draw_points(axes, (steps, values_RS.mean(axis=0)), (low, high), (label, colour, marker), line)
        return
    smoothed_RS = np.array([smooth(row) for row in values_RS])
    for row in values_RS:
        axes.plot(steps, row, color=colour, linewidth=0.7, alpha=0.3)
    axes.plot(steps, smoothed_RS.mean(axis=0), color=colour, linewidth=1.8, label=label)
    if len(having) > 1:
        low, high = smoothed_RS.min(axis=0), smoothed_RS.max(axis=0)
        axes.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
