"""Writes a plan as text: the tables of `slimrl plan`, the reason for a refusal, and the two lines of `rl`."""

import itertools
from collections.abc import Iterator, Sequence

from slimrl.config.run import RLConfig
from slimrl_tools.plan.memory import HALF, PHASES
from slimrl_tools.plan.plan import Place, Plan

NAMES = {"always": "always", "sampling": "while sampling", "training": "while training", "saving": "while saving",
         "scoring": "while the teacher scores"}  # fmt: skip
LEAST_SHOWN = 5e6  # parts with fewer bytes are not shown
WIDTH = 62


def two_lines(plan: Plan) -> list[str]:
    """Return a plan in two lines: the memory, and the time."""
    place, trainer, times = plan.tightest, plan.trainer, plan.times
    beyond = f", {_gb(place.most)} if every conversation fills seq_len" if place.most > 1.05 * place.expected else ""
    phase = f"{NAMES[trainer.widest]} {_gb(trainer.inside(trainer.widest))}"
    return [
        f"plan: {_gb(place.expected)} of {_gb(place.capacity)} of {_device(place, plan)}{beyond} "
        f"(weights and optimizer {_gb(trainer.inside('always'))}, {phase})",
        f"plan: about {_duration(times.step_s)} a step, {_duration(times.run_s)} to the end "
        f"({_source(plan)}; most goes to {times.bottleneck})",
    ]


def explain_refusal(plan: Plan) -> str:
    """Return the reason why a run is refused, with advice, and the option that starts the run anyway."""
    place = plan.tightest
    parts = sorted((part for one in place.processes for part in one.parts), key=lambda part: -part.bytes)
    largest = ", ".join(f"{part.name} {_gb(part.bytes)}" for part in parts[:3])
    return (
        f"this run cannot fit: {_capacity(plan, place)}, and at once are needed {_gb(place.least)}, of which {largest}."
        f" Nothing was loaded. `slimrl plan` with the same words shows all parts. {_advice(plan)} Or let it try by "
        "`--plan warn`."
    )


def full_report(plan: Plan) -> Iterator[str]:
    """Yield all lines of the report."""
    shape, config = plan.demand.shape, plan.config
    is_rl = isinstance(config, RLConfig)
    trained = "an adapter" if plan.demand.is_adapter else "all weights"
    apart = isinstance(config, RLConfig) and config.deployment.are_apart
    yield (
        f"{shape.name}: {shape.weights / 1e6:,.0f} million weights in {shape.layers} layers, "
        f"{'bfloat16' if plan.demand.compute.bytes == HALF else 'float32'}, {trained} trained"
    )
    in_turn = ", sampling and training in turn" if is_rl else ""
    yield f"on {plan.machine.name}; {'several processes' if apart else f'one process{in_turn}'}"
    yield ""
    # Ranks with equal memory are shown once.
    for _, equal in itertools.groupby(plan.places, key=lambda place: (place.expected, len(place.processes))):
        yield from _place_lines(plan, [*equal])
    times, workload = plan.times, plan.workload
    yield f"time ({_source(plan)}; {workload.source})"
    sampled = f", {workload.num_sampled:,.0f} of them sampled" if is_rl else ""
    yield f"  a step has {workload.num:,.0f} conversations of {workload.mean_length:,.0f} tokens{sampled}"
    yield from (_time_row(name, seconds) for name, seconds in times.step.items() if seconds)
    overlaps = ", as both halves go on at once" if times.overlaps else ""
    yield f"{_time_row('a step', times.step_s)}{overlaps}; most goes to {times.bottleneck}"
    yield from (_time_row(name, seconds) for name, seconds in times.run.items() if seconds)
    yield _time_row("to the end", times.run_s)
    yield ""
    yield verdict(plan)
    if plan.tightest.may_not_fit:
        yield _advice(plan)


def verdict(plan: Plan) -> str:
    """Return a sentence on whether the run fits."""
    place = plan.tightest
    if plan.cannot_fit:
        return f"It does not fit: {_capacity(plan, place)}."
    if not plan.fits:
        return f"It may not fit: {_gb(place.expected)} are expected, {_capacity(plan, place)}."
    if place.may_not_fit:
        return f"It fits, but not if every conversation fills seq_len: then {_gb(place.most)} are needed."
    return "It fits."


def _place_lines(plan: Plan, places: Sequence[Place]) -> Iterator[str]:
    place = places[0]
    yield f"memory of {_device(place, plan)}" + "".join(f" and of {one.device}" for one in places[1:])
    for one in place.processes:
        yield f"  {one.name}"
        base = "CUDA context and kernels" if one.device != "cpu" else "Python, PyTorch, transformers"
        yield "  " + _row(base, one.base)
        for phase in ("always", *PHASES):
            note = "" if phase == "always" else f" ({NAMES[phase]})"
            parts = [part for part in one.parts if part.phase == phase and part.bytes >= LEAST_SHOWN]
            yield from ("  " + _row(f"{part.name}{note}", part.bytes) for part in parts)
        if one.parts:
            yield "  " + _row(f"most at once, {NAMES[one.widest]}", one.least)
            yield "  " + _row("with what the allocator keeps", one.peak)
    yield f"{_row('expected', place.expected, 2)} of {_gb(place.capacity)}{_limit(plan, place)}"
    if place.most > place.expected:
        yield _row("at most, if every conversation fills seq_len", place.most, 2)
    yield ""


def _source(plan: Plan) -> str:
    compute = plan.demand.compute
    lacks_kernels = compute.kind == "cpu" and not compute.has_kernels
    return plan.speeds.source + (", without the C++ kernels" if lacks_kernels else "")


def _time_row(name: str, seconds: float) -> str:
    return f"  {name:<{WIDTH}}{_duration(seconds):>10}"


def _row(name: str, num_bytes: float, wider: int = 0) -> str:
    return f"  {name:<{WIDTH + wider}}{_gb(num_bytes):>10}"


def _device(place: Place, plan: Plan) -> str:
    if place.device == "cpu":
        return "main memory"
    return f"GPU {place.device.removeprefix('cuda:')} ({plan.machine.device_at(place.device).name})"


def _limit(plan: Plan, place: Place) -> str:
    return f", by {plan.machine.limit}" if plan.machine.limit and place.device == "cpu" else ""


def _capacity(plan: Plan, place: Place) -> str:
    return f"{_device(place, plan)} has {_gb(place.capacity)}{_limit(plan, place)}"


def _gb(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:,.2f} GB" if num_bytes < 10e9 else f"{num_bytes / 1e9:,.0f} GB"


def _duration(seconds: float) -> str:
    if seconds < 0.995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 99.5:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * 3600 else f"{seconds / 3600:.1f} h"


def _advice(plan: Plan) -> str:
    is_rl = isinstance(plan.config, RLConfig)
    trainer, slots = ("trainer.", "fewer `inference.max_slots`, ") if is_rl else ("", "")
    return (
        f"What saves memory: an adapter (`--model.lora.rank 16`), smaller packs (`{trainer}micro_batch_tokens`), "
        f"`--{trainer}activation_checkpointing true`, {slots}a shorter `seq_len`, or a smaller model."
    )
