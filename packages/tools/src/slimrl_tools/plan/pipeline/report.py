"""The model's answer as text: a table, a line for each number of devices, and what it says."""

from collections.abc import Iterator, Sequence

from slimrl_tools.plan.pipeline.choose import Question, smallest_as_fast
from slimrl_tools.plan.pipeline.outcome import Outcome

HEAD = "GPUs", "replicas + ranks", "steps/h", "tokens/s", "age", "p95", "dropped", "idle: samplers", "trainer", "waits"
ENOUGH = 0.9


def pipeline_report(question: Question, outcomes: Sequence[Outcome], device: str, price: float) -> Iterator[str]:
    """The lines of `slimrl plan --run`. `price` is that of a device's hour, 0 if it is unknown."""
    recipe, episodes = question.recipe, question.episodes
    yield f"SIMULATED, not measured: {recipe.batch_size} rollouts a step in groups of {recipe.group_size} on {device}"
    yield f"played: {episodes.source}"
    useless = f"; of {episodes.useless:.0%} of the groups nothing was learned"
    yield f"  {episodes.mean:,.0f} sampled tokens an episode, {episodes.longest:,} in the longest{useless}"
    if not episodes.knows_env_s:
        yield "  the run did not record how long environments took (it is older than that): they take no time here"
    yield f"times: {question.costs.source}"
    yield ""
    yield from _table(outcomes, price)
    yield ""
    yield from _verdict(outcomes, price)


def cost_of(outcome: Outcome, price: float) -> float:
    """What 100 steps cost, in device-hours if there is no price."""
    return 100 * outcome.device_hours * (price or 1.0)


def _table(outcomes: Sequence[Outcome], price: float) -> Iterator[str]:
    head = [*HEAD, "cost of 100 steps" if price else "GPU-hours of 100 steps"]
    rows = [head, *(_row(outcome, price) for outcome in outcomes)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for row in rows:
        yield "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True))


def _row(one: Outcome, price: float) -> list[str]:
    placement = one.placement
    parts = "in turn" if placement.kind == "one-process" else f"{placement.num_samplers} + {placement.num_trainers}"
    numbers = [f"{one.steps_per_hour:,.1f}", f"{one.tokens_per_s:,.0f}", f"{one.age_mean:.2f}", f"{one.age_p95:.0f}"]
    shares = [f"{share:.0%}" for share in (one.dropped, one.sampler_idle, one.trainer_idle)]
    who = "each for the other" if placement.kind == "one-process" else one.who_waits
    return [str(placement.num_devices), parts, *numbers, *shares, who, f"{cost_of(one, price):,.2f}"]


def _verdict(outcomes: Sequence[Outcome], price: float) -> Iterator[str]:
    cheapest = min(outcomes, key=lambda one: one.device_hours)
    unit = "" if price else " GPU-hours"
    yield (
        f"Cheapest: {_devices(cheapest)}, {cost_of(cheapest, price):,.2f}{unit} for 100 steps, "
        f"{cheapest.steps_per_hour:,.1f} steps an hour."
    )
    enough = smallest_as_fast(outcomes, ENOUGH)
    if len(outcomes) > 1:
        yield f"{ENOUGH:.0%} of the most steps an hour: {_devices(enough)}, {enough.steps_per_hour:,.1f}."


def _devices(outcome: Outcome) -> str:
    placement, num = outcome.placement, outcome.placement.num_devices
    if placement.kind == "one-process":
        return "1 GPU in one process"
    return f"{num} GPUs ({placement.num_samplers} replicas + {placement.num_trainers} ranks)"
