"""Shows the simulations as text and as a plot: a line for each number of devices, and curves of speed, age and cost."""

from collections.abc import Iterator, Mapping, Sequence

from matplotlib.figure import Figure

from slimrl.monitor.plots import BLUE, FAINT, GREEN, INK, ORANGE
from slimrl_tools.plan.pipeline.choose import Question, choose, smallest_as_fast
from slimrl_tools.plan.pipeline.simulate import Outcome

HEAD = "GPUs", "replicas + ranks", "steps/h", "tokens/s", "age", "p95", "dropped", "idle: samplers", "trainer", "waits"
ENOUGH = 0.9
DEVICES = 1, 2, 4, 8, 16, 32, 125, 500, 1000  # in the plot
LEVELS = 0, 1, 2
COLOURS = BLUE, ORANGE, GREEN


def pipeline_report(question: Question, outcomes: Sequence[Outcome], device: str, price: float) -> Iterator[str]:
    """Yield the lines of `slimrl plan --run`. `price` is the cost of a device-hour, 0 if unknown."""
    recipe, episodes = question.recipe, question.episodes
    yield f"SIMULATED, not measured: {recipe.batch_size} rollouts a step in groups of {recipe.group_size} on {device}"
    yield f"played: {episodes.source}"
    useless = f"; of {episodes.useless:.0%} of the groups nothing was learned"
    yield f"  {episodes.mean:,.0f} sampled tokens an episode, {episodes.longest:,} in the longest{useless}"
    if not episodes.knows_env_s:
        yield "  the run did not record how long environments took (it is older than that): they take no time here"
    yield f"times: {question.costs.source}"
    yield ""
    rows = [[*HEAD, f"{'cost' if price else 'GPU-hours'} of 100 steps"], *(_row(one, price) for one in outcomes)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    yield from ("  ".join(map(str.rjust, row, widths)) for row in rows)
    yield ""
    cheapest = min(outcomes, key=lambda one: one.device_hours)
    cost = f"{cost_of(cheapest, price):,.2f}{'' if price else ' GPU-hours'}"
    yield f"Cheapest: {_devices(cheapest)}, {cost} for 100 steps, {cheapest.steps_per_hour:,.1f} steps an hour."
    enough = smallest_as_fast(outcomes, ENOUGH)
    if len(outcomes) > 1:
        yield f"{ENOUGH:.0%} of the most steps an hour: {_devices(enough)}, {enough.steps_per_hour:,.1f}."


def cost_of(outcome: Outcome, price: float) -> float:
    """Return the cost of 100 steps, in device-hours without a price."""
    return 100 * outcome.device_hours * (price or 1.0)


def _row(one: Outcome, price: float) -> list[str]:
    placement = one.placement
    numbers = [f"{one.steps_per_hour:,.1f}", f"{one.tokens_per_s:,.0f}", f"{one.age_mean:.2f}", f"{one.age_p95:.0f}"]
    shares = [f"{share:.0%}" for share in (one.dropped, one.sampler_idle, one.trainer_idle)]
    if placement.kind == "one-process":
        parts, waits = "in turn", "each for the other"
    else:
        parts, more = f"{placement.num_samplers} + {placement.num_trainers}", one.trainer_idle - one.sampler_idle
        waits = "both alike" if abs(more) < 0.1 else "trainer" if more > 0 else "samplers"
    return [str(placement.num_devices), parts, *numbers, *shares, waits, f"{cost_of(one, price):,.2f}"]


def _devices(outcome: Outcome) -> str:
    placement, num = outcome.placement, outcome.placement.num_devices
    if placement.kind == "one-process":
        return "1 GPU in one process"
    return f"{num} GPUs ({placement.num_samplers} replicas + {placement.num_trainers} ranks)"


def curves_of(question: Question) -> dict[str, list[Outcome]]:
    """Return the best outcomes with more and more devices, at each staleness bound."""
    numbers = [num for num in DEVICES if num > question.least_trainers or num == 1 == question.least_trainers]
    return {f"max_async_level {level}": [choose(question.at_level(level), num) for num in numbers] for level in LEVELS}


def draw_pipeline(curves: Mapping[str, Sequence[Outcome]], price: float, title: str) -> Figure:
    """Draw several curves, each of outcomes with more and more devices."""
    figure = Figure(figsize=(12.6, 4.0), layout="constrained")
    figure.suptitle(f"{title} (simulated, not measured)", x=0.01, ha="left", fontsize=11, color=INK)
    throughput, staleness, cost = figure.subplots(1, 3)

    for (name, outcomes), colour in zip(curves.items(), COLOURS, strict=False):
        num = [one.placement.num_devices for one in outcomes]
        lines = [
            (throughput, [one.steps_per_hour for one in outcomes], name, "o-"),
            (staleness, [one.age_mean for one in outcomes], f"{name}, age", "o-"),
            (staleness, [one.dropped for one in outcomes], f"{name}, share dropped as too old", "x:"),
            (cost, [cost_of(one, price) for one in outcomes], name, "o-"),
        ]
        for axes, values, label, style in lines:
            axes.plot(num, values, style, ms=3, color=colour, label=label)
    titles = {throughput: "training steps an hour", staleness: "age of what is trained, in versions"}
    titles[cost] = "cost of 100 steps" if price else "GPU-hours of 100 steps"
    for axes, text in titles.items():
        axes.set_title(text, loc="left", fontsize=10, color=INK)
        axes.set(xscale="log", yscale="linear" if axes is staleness else "log", xlabel="GPUs (simulated)")
        axes.grid(color=FAINT, which="both", lw=0.6)
        axes.legend(fontsize=7, frameon=False)
    return figure
