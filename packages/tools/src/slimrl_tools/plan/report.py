"""Writes a plan as text: the tables of `slimrl plan`, changes that make a run fit, and the two lines of `rl`."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slimrl.config.run import RLConfig
from slimrl_tools.plan.memory import HALF, PHASES
from slimrl_tools.plan.plan import Place, Plan, Planner, with_settings

NAMES = {"always": "always", "sampling": "while sampling", "training": "while training", "saving": "while saving",
         "scoring": "while the teacher scores"}  # fmt: skip
SHOWN = 5  # largest number of proposals in a report
LEAST_SHOWN = 5e6  # parts with fewer bytes are not shown
WIDTH = 62
RANK = 16  # rank of the proposed LoRA adapter
LEAST_SAVED = 0.03e9
SHORTEST, FEWEST_SLOTS, SMALLEST_PACK = 256, 8, 512


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposal to change `settings`. `saves` is the number of bytes that this saves on the tightest device. `fits` is
    True if the run then fits. `price` is the disadvantage."""

    settings: dict[str, object]
    saves: float
    fits: bool
    price: str

    @property
    def text(self) -> str:
        """Return the proposal as a sentence."""
        words = " ".join(f"--{key} {str(value).replace('True', 'true')}" for key, value in self.settings.items())
        return f"{words} saves {self.saves / 1e9:.1f} GB{', and then it fits' if self.fits else ''} ({self.price})"


def proposals(planner: Planner, plan: Plan) -> list[Proposal]:
    """Return proposals that save memory, largest saving first. The run is planned again for each proposal."""

    def proposal(settings: dict[str, object], price: str) -> Proposal:
        changed = planner.placed(with_settings(plan.config, settings), plan.machine, plan.speeds)
        before = plan.tightest
        left = next((place.expected for place in changed.places if place.device == before.device), before.expected)
        return Proposal(settings, before.expected - left, changed.fits, price)

    found = [one for one in itertools.starmap(proposal, _changes(plan)) if one.saves >= LEAST_SAVED]
    return sorted(found, key=lambda one: -one.saves)


def _changes(plan: Plan) -> Iterator[tuple[dict[str, object], str]]:
    """Yield settings that may save memory, each with a text on its disadvantage."""
    config = plan.config
    section, trainer = ("trainer.", config.trainer) if isinstance(config, RLConfig) else ("", config)
    micro = trainer.micro_batch_tokens
    if config.model.lora.rank == 0:
        yield {"model.lora.rank": RANK}, "trains an adapter; docs/lora.md"
    if not trainer.activation_checkpointing:
        yield {f"{section}activation_checkpointing": True}, "training takes 1.5 times as long"
    if micro > SMALLEST_PACK:
        yield {f"{section}micro_batch_tokens": max(SMALLEST_PACK, micro // 2)}, "more and smaller packs"
    if config.seq_len >= 2 * SHORTEST:
        yield {"seq_len": config.seq_len // 2}, "episodes end sooner"
    if plan.demand.compute.bytes > HALF:
        is_gpu = plan.machine.device.kind == "cuda"
        yield {"model.dtype": "bfloat16"}, "coarser" if is_gpu else "slower on a CPU without bfloat16"
    if not isinstance(config, RLConfig):
        return
    if config.inference.max_slots >= 2 * FEWEST_SLOTS and not config.inference.base_url:
        yield {"inference.max_slots": config.inference.max_slots // 2}, "sampling takes longer"
    if config.trainer.loss.resolve(config.has_teacher).kl_beta:
        yield {"trainer.loss.kl_beta": 0.0}, "no reference"
    if config.async_level and config.deployment.type == "one-process":
        yield {"max_async_level": 0}, "sampling and training in turn"


def two_lines(plan: Plan) -> list[str]:
    """Return a plan in two lines: the memory and disk, and the time."""
    place, trainer, times = plan.tightest, plan.trainer, plan.times
    beyond = f", {_gb(place.most)} if every conversation fills seq_len" if place.most > 1.05 * place.expected else ""
    phase = f"{NAMES[trainer.widest]} {_gb(trainer.inside(trainer.widest))}"
    return [
        f"plan: {_gb(place.expected)} of {_gb(place.capacity)} of {_device(place, plan)}{beyond} "
        f"(weights and optimizer {_gb(trainer.inside('always'))}, {phase}); disk {_gb(plan.disk_bytes)}",
        f"plan: about {_duration(times.step_s)} a step, {_duration(times.run_s)} to the end "
        f"({_source(plan)}; most goes to {times.bottleneck})",
    ]


def explain_refusal(plan: Plan, found: Sequence[Proposal]) -> str:
    """Return the reason why a run is refused, with changes that help, and the option that starts the run anyway."""
    place = plan.tightest
    enough = [one.text for one in found if one.fits] or [one.text for one in found]
    advice = "".join(f"\n- {text}" for text in enough[:SHOWN]) or "\n- a smaller model"
    parts = sorted((part for one in place.processes for part in one.parts), key=lambda part: -part.bytes)
    largest = ", ".join(f"{part.name} {_gb(part.bytes)}" for part in parts[:3])
    return (
        f"this run cannot fit: {_capacity(plan, place)}, and at once are needed {_gb(place.least)}, of which {largest}."
        " Nothing was loaded. `slimrl plan` with the same words shows all parts. Change one of these, or let it try by "
        f"`--plan warn`:{advice}"
    )


def full_report(plan: Plan, found: Sequence[Proposal]) -> Iterator[str]:
    """Yield all lines of the report."""
    shape, config, free = plan.demand.shape, plan.config, plan.machine.disk
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
    yield "disk"
    yield from (_row(part.name, part.bytes) for part in plan.disk)
    short = ", which is not enough" if 0 < free < plan.disk_bytes else ""
    yield _row("together", plan.disk_bytes) + (f" of {_gb(free)} free{short}" if free else "")
    yield ""
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
    if found:
        yield "what saves memory"
        yield from (f"  {one.text}" for one in found[:SHOWN])
    yield ""
    yield verdict(plan)


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
    """Return the source of the times, and a note if they are for a CPU without the C++ kernels."""
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
