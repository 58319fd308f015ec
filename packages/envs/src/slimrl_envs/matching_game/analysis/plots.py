"""Pictures of the questions in a run, over training and against the reward."""

import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from slimrl.monitor.plots import BLUE, FEW, INK, ORANGE, style_axes
from slimrl.monitor.series import Series, common_steps, smooth
from slimrl.stats import Estimate
from slimrl_envs.matching_game.analysis.runs import Run, values_of, with_proposal

PANELS = {
    "before": "different questions before the first proposal, a game",
    "distinct": "different questions in the whole game",
    "score_seeking": "questions that seek a score, a game",
    "reward": "reward: share of the best assignment's worth",
}
QUESTIONS = ("before", "distinct", "score_seeking")  # the panels that count, on one scale
ASKED = "before"  # the measure that the reward is drawn over
MAX_CHARS = 110  # of the line under a title, which is as wide as the smaller picture
JITTER = 0.18  # questions are whole numbers: their points would hide each other


def draw_training(runs: Sequence[Run], verdict: str) -> Figure:
    """A figure of the means per game over training: of each step and smoothed for one run, of each run with their mean
    and range for several. The title has the `verdict`."""
    figure = Figure(figsize=(8.4, 6.2), layout="constrained")
    cells = dict(zip(PANELS, figure.subplots(2, 2).flat, strict=True))
    for measure, axes in cells.items():
        draw = _draw_run if len(runs) == 1 else _draw_runs
        draw(axes, [_by_step(run, measure) for run in runs])
        style_axes(axes)
        axes.set_xlabel("training step", fontsize=8.5, color=INK)
        axes.set_title(PANELS[measure], loc="left", fontsize=9.5, color=INK)
    # From 0, on one scale for all counts, so that a small change looks small.
    top = max(cells[measure].get_ylim()[1] for measure in QUESTIONS)
    for measure in QUESTIONS:
        cells[measure].set_ylim(0, max(1.0, top))
    cells["reward"].set_ylim(0, 1.02)
    _set_titles(figure, f"Questions in the matching game over training: the policy {verdict}", _names(runs))
    handles, labels = cells["reward"].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8.5, ncols=len(labels), loc="outside lower center")
    return figure


def draw_scatter(runs: Sequence[Run], found: Mapping[str, Estimate]) -> Figure:
    """A figure of every game by its questions before the first proposal and its reward, with the mean reward for each
    number of questions, and the correlations."""
    episodes = [episode for run in runs for episode in with_proposal(run.episodes)]
    asked = np.array(values_of(episodes, ASKED))
    rewards = np.array(values_of(episodes, "reward"))
    shifts = np.random.default_rng(0).uniform(-JITTER, JITTER, len(asked))
    figure = Figure(figsize=(7.2, 5.0), layout="constrained")
    axes = figure.add_subplot()
    games = f"a game, moved a little to the side ({len(asked)} games)"
    axes.scatter(asked + shifts, rewards, s=9, color=BLUE, alpha=0.25, linewidths=0, label=games)
    numbers = np.unique(asked)
    means = [rewards[asked == number].mean() for number in numbers]
    label = "their mean reward, by the number of questions"
    axes.plot(numbers, means, color=ORANGE, marker="o", markersize=4, linewidth=1.6, label=label)
    style_axes(axes)
    axes.set_ylim(0, 1.02)
    axes.set_xlim(-0.5, max(1.0, asked.max(initial=0)) + 0.5)
    axes.set_xlabel("different questions before the first proposal", fontsize=8.5, color=INK)
    axes.set_ylabel("reward: share of the best assignment's worth", fontsize=8.5, color=INK)
    told = "; ".join(f"{name} {one.mean:.2f} ({one.interval})" for name, one in found.items())
    _set_titles(figure, "Do games with more questions earn more?", f"Correlation {told}; {_names(runs)}")
    figure.legend(frameon=False, fontsize=8.5, ncols=2, loc="outside lower center")
    return figure


def _names(runs: Sequence[Run]) -> str:
    names = ", ".join(run.name for run in runs)
    return f"{len(runs)} runs: {names}" if len(runs) > 1 else f"run {names}"


def _set_titles(figure: Figure, title: str, below: str) -> None:
    """Set the title of a figure and a line below it, both from the left."""
    # An empty second line of the title keeps the place, which a text by itself would not.
    figure.suptitle(f"{title}\n", x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK)
    top = 0.98 - 14 / (72 * figure.get_figheight())  # under the first line, of 11 points
    shown = textwrap.shorten(below, MAX_CHARS, placeholder=" ...")
    figure.text(0.01, top, shown, fontsize=8.5, color=INK, va="top").set_in_layout(False)


def _by_step(run: Run, measure: str) -> Series:
    values = {
        step: values_of([episode for episode in run.episodes if episode.step == step], measure) for step in run.steps
    }
    known = {step: np.mean(found) for step, found in values.items() if found}
    return np.array([*known]), np.array([*known.values()])


def _draw_run(axes: Axes, curves: Sequence[Series]) -> None:
    """Draw the steps of one run, and a smoothed line where there are many."""
    ((steps, values),) = curves
    axes.plot(steps, values, color=BLUE, linewidth=0, alpha=0.45, marker="o", markersize=3, label="mean of a step")
    if len(values) >= FEW:
        axes.plot(steps, smooth(values), color=BLUE, linewidth=2.0, label="the same, smoothed")


def _draw_runs(axes: Axes, curves: Sequence[Series]) -> None:
    """Draw each run, and the mean and the range of the runs at the steps that all have."""
    is_long = all(len(values) >= FEW for _, values in curves)
    drawn = [(steps, smooth(values) if is_long else values) for steps, values in curves]
    marker, label = ("", "a run, smoothed") if is_long else ("o", "a run")
    for steps, values in drawn:
        axes.plot(steps, values, color=BLUE, linewidth=0.9, alpha=0.45, marker=marker, markersize=3, label=label)
        label = ""  # once in the legend
    shared, values_RS = common_steps(drawn)
    if len(shared):
        axes.plot(shared, values_RS.mean(axis=0), color=BLUE, linewidth=2.0, label=f"mean of the {len(curves)} runs")
        low, high = values_RS.min(axis=0), values_RS.max(axis=0)
        axes.fill_between(shared, low, high, color=BLUE, alpha=0.15, linewidth=0, label="from lowest to highest")
