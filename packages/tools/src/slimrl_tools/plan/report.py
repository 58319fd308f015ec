"""Writes a plan as text: the tables of `slimrl plan`, and the two lines at the start of `rl`."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

from slimrl.config.run import RLConfig
from slimrl_tools.plan.advice import Proposal
from slimrl_tools.plan.memory import PHASES
from slimrl_tools.plan.plan import Place, Plan

NAMES = {"always": "always", "sampling": "while sampling", "training": "while training", "saving": "while saving",
         "scoring": "while the teacher scores"}  # fmt: skip
SHOWN = 5  # proposals
LEAST_SHOWN = 5e6  # bytes of a part
WIDTH = 62


def two_lines(plan: Plan) -> list[str]:
    """Return the cost of a run in two lines: memory and time."""
    place, trainer, times = plan.tightest, plan.trainer, plan.times
    beyond = f", {_gb(place.most)} if every conversation fills seq_len" if place.most > 1.05 * place.expected else ""
    phase = f"{NAMES[trainer.widest]} {_gb(trainer.inside(trainer.widest))}"
    return [
        f"plan: {_gb(place.expected)} of {_gb(place.capacity)} of {_device(place, plan)}{beyond} "
        f"(weights and optimizer {_gb(trainer.inside('always'))}, {phase}); disk {_gb(plan.disk_bytes)}",
        f"plan: about {_duration(times.step_s)} a step, {_duration(times.run_s)} to the end "
        f"({_source(plan)}; most goes to {times.bottleneck})",
    ]


def explain_refusal(plan: Plan, found: Sequence[Proposal], setting: str) -> str:
    """Explain why a run is refused. Name changes to make, and the setting that lets it try."""
    place = plan.tightest
    enough = [one.text for one in found if one.fits] or [one.text for one in found]
    advice = "".join(f"\n- {text}" for text in enough[:SHOWN]) or "\n- a smaller model"
    return (
        f"this run cannot fit: {_device(place, plan)} has {_gb(place.capacity)}{_limit(plan, place)}, and at once are "
        f"needed {_gb(place.least)}, of which {_largest(place)}. Nothing was loaded. `slimrl plan` with the same words "
        f"shows all parts. Change one of these, or let it try by {setting}:{advice}"
    )


def full_report(plan: Plan, found: Sequence[Proposal]) -> list[str]:
    """Return all lines of the report."""
    shape, compute = plan.demand.shape, plan.demand.compute
    trained = "an adapter" if plan.demand.is_adapter else "all weights"
    lines = [
        f"{shape.name}: {shape.weights / 1e6:,.0f} million weights in {shape.layers} layers, "
        f"{'bfloat16' if compute.bytes == 2 else 'float32'}, {trained} trained",
        f"on {plan.machine.name}; {_deployment(plan)}",
        "",
    ]
    # The ranks of a trainer hold the same, and are shown once.
    for _, equal in itertools.groupby(plan.places, key=lambda place: (place.expected, len(place.processes))):
        lines += _place_lines(plan, [*equal])
    lines += ["disk", *_rows((part.name, _gb(part.bytes)) for part in plan.disk), _disk_line(plan), ""]
    lines += _time_lines(plan)
    lines += ["what saves memory", *(f"  {one.text}" for one in found[: SHOWN + 1])] if found else []
    return [*lines, "", verdict(plan)]


def verdict(plan: Plan) -> str:
    """Return a sentence on whether the run fits."""
    place = plan.tightest
    has = f"{_device(place, plan)} has {_gb(place.capacity)}{_limit(plan, place)}"
    if plan.cannot_fit:
        return f"It does not fit: {has}."
    if not plan.fits:
        return f"It may not fit: {_gb(place.expected)} are expected, {has}."
    if place.may_not_fit:
        return f"It fits, but not if every conversation fills seq_len: then {_gb(place.most)} are needed."
    return "It fits."


def _place_lines(plan: Plan, places: Sequence[Place]) -> Iterator[str]:
    place = places[0]
    yield f"memory of {_device(place, plan)}" + "".join(f" and of {one.device}" for one in places[1:])
    for one in place.processes:
        yield f"  {one.name}"
        base = "CUDA context and kernels" if one.device != "cpu" else "Python, PyTorch, transformers"
        rows = [(base, _gb(one.base))] if one.base else []
        for phase in ("always", *PHASES):
            parts = [part for part in one.parts if part.phase == phase and part.bytes >= LEAST_SHOWN]
            note = "" if phase == "always" else f" ({NAMES[phase]})"
            rows += [(f"{part.name}{note}", _gb(part.bytes)) for part in parts]
        yield from (f"  {row}" for row in _rows(rows))
        if one.parts and one.base:  # for other programs the parts are complete
            yield f"    {'most at once, ' + NAMES[one.widest]:<{WIDTH}}{_gb(one.least):>10}"
            yield f"    {'with what the allocator keeps':<{WIDTH}}{_gb(one.peak):>10}"
    yield f"  {'expected':<{WIDTH + 2}}{_gb(place.expected):>10} of {_gb(place.capacity)}{_limit(plan, place)}"
    if place.most > place.expected:
        yield f"  {'at most, if every conversation fills seq_len':<{WIDTH + 2}}{_gb(place.most):>10}"
    yield ""


def _disk_line(plan: Plan) -> str:
    free = f" of {_gb(plan.machine.disk)} free" if plan.machine.disk else ""
    short = ", which is not enough" if 0 < plan.machine.disk < plan.disk_bytes else ""
    return f"  {'together':<{WIDTH}}{_gb(plan.disk_bytes):>10}{free}{short}"


def _time_lines(plan: Plan) -> Iterator[str]:
    times, workload = plan.times, plan.workload
    yield f"time ({_source(plan)}; {workload.source})"
    sampled = f", {workload.num_sampled:,.0f} of them sampled" if isinstance(plan.config, RLConfig) else ""
    yield f"  a step has {workload.num:,.0f} conversations of {workload.mean_length:,.0f} tokens{sampled}"
    yield from _rows((name, _duration(seconds)) for name, seconds in times.step.items() if seconds)
    overlaps = ", as both halves go on at once" if times.overlaps else ""
    yield f"  {'a step':<{WIDTH}}{_duration(times.step_s):>10}{overlaps}; most goes to {times.bottleneck}"
    yield from _rows((name, _duration(seconds)) for name, seconds in times.run.items() if seconds)
    yield f"  {'to the end':<{WIDTH}}{_duration(times.run_s):>10}"
    yield ""


def _source(plan: Plan) -> str:
    """Return the source of the times, and a note if they are for a CPU without the C++ kernels."""
    compute = plan.demand.compute
    lacks_kernels = compute.kind == "cpu" and not compute.has_kernels
    return plan.speeds.source + (", without the C++ kernels" if lacks_kernels else "")


def _rows(rows: Iterable[tuple[str, str]]) -> list[str]:
    return [f"  {name:<{WIDTH}}{value:>10}" for name, value in rows]


def _deployment(plan: Plan) -> str:
    config = plan.config
    if not isinstance(config, RLConfig):
        return "one process"
    return "several processes" if config.deployment.are_apart else "one process, sampling and training in turn"


def _device(place: Place, plan: Plan) -> str:
    if place.device == "cpu":
        return "main memory"
    return f"GPU {place.device.removeprefix('cuda:')} ({plan.machine.device_at(place.device).name})"


def _limit(plan: Plan, place: Place) -> str:
    return f", by {plan.machine.limit}" if plan.machine.limit and place.device == "cpu" else ""


def _largest(place: Place) -> str:
    parts = sorted((part for one in place.processes for part in one.parts), key=lambda part: -part.bytes)
    return ", ".join(f"{part.name} {_gb(part.bytes)}" for part in parts[:3])


def _gb(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:,.2f} GB" if num_bytes < 10e9 else f"{num_bytes / 1e9:,.0f} GB"


def _duration(seconds: float) -> str:
    if seconds < 0.995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 99.5:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * 3600 else f"{seconds / 3600:.1f} h"
