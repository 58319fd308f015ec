"""Pictures of the questions in a run, over training and against the reward."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from slimrl.environments.matching_game.analysis.runs import Run, values_of, with_proposal
from slimrl.monitor.plots import BLUE, FEW, INK, ORANGE, Series, common_steps, smooth, style_axes
from slimrl.stats import Estimate

PANELS = {
    "before": "different questions before the first proposal",
    "distinct": "different questions in the whole game",
    "score_seeking": "questions that seek a score",
    "reward": "reward",
}
ASKED = "before"  # what the reward is drawn over
JITTER = 0.18  # questions are whole numbers: their points would hide each other


def draw_training(runs: Sequence[Run]) -> Figure:
    """A figure of the mean of each step: faint for each run, and the mean and range of several runs."""
    figure = Figure(figsize=(8.4, 5.6), layout="constrained")
    cells = figure.subplots(2, 2).flat
    for axes, (measure, title) in zip(cells, PANELS.items(), strict=True):
        _draw_measure(axes, [_by_step(run, measure) for run in runs])
        axes.set_title(title, loc="left", fontsize=9.5, color=INK)
    names = ", ".join(run.name for run in runs)
    figure.suptitle(names, x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK)
    return figure


def draw_scatter(runs: Sequence[Run], found: Mapping[str, Estimate]) -> Figure:
    """A figure of every game by its questions before the first proposal and its reward, with the mean reward for each
    number of questions, and the correlations."""
    episodes = [episode for run in runs for episode in with_proposal(run.episodes)]
    asked = np.array(values_of(episodes, ASKED))
    rewards = np.array(values_of(episodes, "reward"))
    shifts = np.random.default_rng(0).uniform(-JITTER, JITTER, len(asked))
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.add_subplot()
    axes.scatter(asked + shifts, rewards, s=9, color=BLUE, alpha=0.25, linewidths=0, label="a game")
    numbers = np.unique(asked)
    means = [rewards[asked == number].mean() for number in numbers]
    axes.plot(numbers, means, color=ORANGE, marker="o", markersize=4, linewidth=1.6, label="mean")
    style_axes(axes)
    axes.set_xlabel("different questions before the first proposal", fontsize=8.5, color=INK)
    axes.set_ylabel("reward", color=INK)
    told = "; ".join(f"{name}: r = {one.mean:.2f} ({one.interval})" for name, one in found.items())
    axes.set_title(told, loc="left", fontsize=9, color=INK)
    axes.legend(frameon=False, fontsize=8.5)
    return figure


def _by_step(run: Run, measure: str) -> Series:
    values = {
        step: values_of([episode for episode in run.episodes if episode.step == step], measure) for step in run.steps
    }
    known = {step: np.mean(found) for step, found in values.items() if found}
    return np.array([*known]), np.array([*known.values()])


def _draw_measure(axes: Axes, curves: Sequence[Series]) -> None:
    smoothed = [(steps, smooth(values) if len(values) >= FEW else values) for steps, values in curves]
    for steps, values in smoothed:
        marker = "o" if len(values) < FEW else ""
        axes.plot(steps, values, color=BLUE, linewidth=0.9, alpha=0.45, marker=marker, markersize=3)
    shared, values_RS = common_steps(smoothed)
    if len(shared):
        axes.plot(shared, values_RS.mean(axis=0), color=BLUE, linewidth=2.0)
        axes.fill_between(shared, values_RS.min(axis=0), values_RS.max(axis=0), color=BLUE, alpha=0.15, linewidth=0)
    style_axes(axes)
