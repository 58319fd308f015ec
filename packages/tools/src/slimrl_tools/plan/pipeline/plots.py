"""The model's answer as a plot: throughput, staleness and cost over the number of devices."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from slimrl.monitor.plots import BLUE, FAINT, GREEN, INK, ORANGE
from slimrl_tools.plan.pipeline.choose import Question, choose, with_level
from slimrl_tools.plan.pipeline.outcome import Outcome
from slimrl_tools.plan.pipeline.report import cost_of

COLOURS = BLUE, ORANGE, GREEN, INK
DEVICES = 1, 2, 4, 8, 16, 32, 64, 125, 250, 500, 1000


LEVELS = 0, 1, 2


def curves_of(question: Question) -> dict[str, list[Outcome]]:
    """The outcomes with more and more devices, at each staleness bound."""
    numbers = [num for num in DEVICES if num > question.least_trainers or num == 1 == question.least_trainers]
    return {
        f"max_async_level {level}": [choose(with_level(question, level), num) for num in numbers] for level in LEVELS
    }


def draw_pipeline(curves: Mapping[str, Sequence[Outcome]], price: float, title: str) -> Figure:
    """The figure of several curves, each of outcomes with more and more devices."""
    figure = Figure(figsize=(12.6, 4.0), layout="constrained")
    figure.suptitle(f"{title} (simulated, not measured)", x=0.01, ha="left", fontsize=11, color=INK)
    throughput, staleness, cost = figure.subplots(1, 3)
    for (name, outcomes), colour in zip(curves.items(), COLOURS, strict=False):
        num = [one.placement.num_devices for one in outcomes]
        throughput.plot(num, [one.steps_per_hour for one in outcomes], "o-", ms=3, color=colour, label=name)
        staleness.plot(num, [one.age_mean for one in outcomes], "o-", ms=3, color=colour, label=f"{name}, age")
        dropped = [one.dropped for one in outcomes]
        staleness.plot(num, dropped, "x:", ms=4, color=colour, label=f"{name}, share dropped as too old")
        cost.plot(num, [cost_of(one, price) for one in outcomes], "o-", ms=3, color=colour, label=name)
    _finish(throughput, "training steps an hour", logarithmic=True)
    _finish(staleness, "age of what is trained, in versions", logarithmic=False)
    _finish(cost, "cost of 100 steps" if price else "GPU-hours of 100 steps", logarithmic=True)
    return figure


def _finish(axes: Axes, title: str, logarithmic: bool) -> None:
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    axes.set_xscale("log")
    if logarithmic:
        axes.set_yscale("log")
    axes.set_xlabel("GPUs (simulated)")
    axes.grid(color=FAINT, which="both", lw=0.6)
    axes.legend(fontsize=7, frameon=False)
