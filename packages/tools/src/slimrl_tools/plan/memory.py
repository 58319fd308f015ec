"""Computes the memory of each process of a run, by part: permanent memory, and memory of one phase.

A process in which sampling and training take turns needs the larger of the two, not their sum: one reuses the memory
that the other frees (`models/allocator.py`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from slimrl_tools.plan.demand import Demand
from slimrl_tools.plan.devices import RESERVED

Phase = Literal["always", "sampling", "training", "saving", "scoring"]
PHASES: tuple[Phase, ...] = ("sampling", "training", "saving", "scoring")

# Freed memory that malloc keeps on a CPU (`models/allocator.py`). Sampling frees pieces that do not all fit training's
# needs, and the other way round: this share of the smaller of the two is allocated anew. Each step leaves further
# holes, until the process has grown by a fifth and trims its heap. Measured: docs/plan.md.
NOT_REUSED, HOLES, MOST_KEPT = 0.6, 0.02, 0.38
GPU_GAPS = 0.08  # share that PyTorch's allocator on a GPU keeps in partly filled blocks
LOADING = 60_000_000  # tokenizer, chat template, and remains of reading the weights


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the memory, and the phase that holds it."""

    name: str
    bytes: float
    phase: Phase = "always"


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """The parts of the memory that a process has on one device, such as `cpu` or `cuda:0`.

    `base` counts the bytes of Python and the libraries, or of the CUDA context. The process runs for `num_steps`
    training steps, and each leaves `hole` bytes that later steps cannot reuse. A process that `sleeps` is there only
    while the policy samples.
    """

    name: str
    device: str
    base: float
    parts: tuple[Part, ...]
    num_steps: int = 0
    hole: float = 0.0
    sleeps: bool = False

    def inside(self, phase: Phase) -> float:
        """Return the bytes held in this phase but not always."""
        return sum(part.bytes for part in self.parts if part.phase == phase)

    def bytes_in(self, phase: Phase) -> float:
        """Return all bytes held in this phase."""
        return self.inside("always") + self.inside(phase)

    @property
    def widest(self) -> Phase:
        """Return the phase with the most memory."""
        return max(PHASES, key=self.bytes_in)

    @property
    def tensors(self) -> float:
        """Return the peak bytes of its tensors, as `memory/peak_gb` counts them on a GPU."""
        return self.bytes_in(self.widest)

    @property
    def least(self) -> float:
        """Return the peak bytes in use: the minimum that it needs."""
        return self.base + self.tensors

    @property
    def slack(self) -> float:
        """Return the bytes that its allocator keeps beside the bytes in use."""
        if self.device != "cpu":
            return GPU_GAPS * self.tensors
        smaller = min(self.inside("sampling"), max(self.inside("training"), self.inside("saving")))
        holes = self.num_steps * max(self.hole, HOLES * self.inside("training"))
        return min(MOST_KEPT * self.least, NOT_REUSED * smaller + holes)

    @property
    def peak(self) -> float:
        """Return the bytes that it will take, including the memory that its allocator keeps."""
        return self.least + self.slack


def process(
    name: str, device: str, parts: Iterable[Part], base: float, steps: tuple[int, float] = (0, 0.0)
) -> ProcessMemory:
    """Make a process on a device, with `base` bytes of Python and its libraries. `steps` are the number of its training
    steps and the bytes of the hole that each leaves."""
    own = RESERVED if device.startswith("cuda") else base + LOADING
    return ProcessMemory(name, device, own, tuple(part for part in parts if part.bytes), *steps)


def by_device(processes: Sequence[ProcessMemory]) -> dict[str, list[ProcessMemory]]:
    """Group processes by device."""
    found: dict[str, list[ProcessMemory]] = {}
    for one in processes:
        found.setdefault(one.device, []).append(one)
    return found


def at_once(processes: Sequence[ProcessMemory]) -> float:
    """Return the peak bytes of the processes on a device. Sleeping processes count only while the others sample."""
    awake = [one for one in processes if not one.sleeps]
    beside = sum(one.least for one in processes if one.sleeps)
    return max(sum(one.least for one in awake), beside + sum(one.base + one.bytes_in("sampling") for one in awake))


def training_parts(demand: Demand, num_ranks: int = 1) -> list[Part]:
    """Return the trainer's parts beside the weights, as the share of one of `num_ranks` ranks."""
    rows = demand.rows
    is_one_pack = rows.num == 1 and num_ranks == 1  # ranks sum gradients in float32
    gradients = demand.gradients(1 if is_one_pack else 2) / num_ranks
    largest = min(rows.largest, -(-rows.tokens // num_ranks))  # packs are split if they are fewer than the ranks
    kept, work = demand.activations(largest), demand.backward_work(largest)
    logits = demand.logits(min(rows.largest_trained, largest), trains_head=not demand.is_adapter)
    # In the backward pass of one pack, gradients replace activations; a second pack already finds gradients there.
    at_start = kept + logits + (0.0 if is_one_pack else gradients)
    at_end = 0.1 * kept + work + gradients
    peak, starts = max(at_start, at_end), at_start >= at_end
    held = 0.0 if starts and is_one_pack else gradients
    rest = max(0.0, peak - held)
    shown = min(logits if starts else work, rest)
    parts = [
        Part("masters of the weights (float32)", demand.masters / num_ranks),
        Part("moments of AdamW", demand.moments / num_ranks),
        Part("gradients", held, "training"),
        Part("activations", rest - shown, "training"),
        Part("logits of a chunk, gradient of the head" if starts else "backward pass of a layer", shown, "training"),
    ]
    if num_ranks > 1:
        parts.append(Part("layers gathered from other ranks", demand.gathered, "training"))
    return [*parts, Part("whole masters for a checkpoint", demand.checkpoint / num_ranks, "saving")]


def weight_parts(demand: Demand, num_ranks: int = 1) -> list[Part]:
    """Return the policy's weights, and an adapter's."""
    return [Part("weights", demand.weights / num_ranks), Part("adapter", demand.adapter / num_ranks)]


def sampling_parts(demand: Demand, alone: bool = False) -> list[Part]:
    """Return the engine's parts beside the weights; it holds them always if it is `alone` in its process."""
    phase: Phase = "always" if alone else "sampling"
    return [
        Part("KV cache", demand.kv_cache, "always" if demand.keeps_cache else phase),
        Part("the engine's copy of the weights", demand.engine_copies, phase),
        Part("prefill and logits", demand.sampling_work(demand.num_slots, demand.prefilled), "sampling"),
    ]


def reference_parts(demand: Demand, num_ranks: int = 1) -> list[Part]:
    """Return the weights of other models, and a teacher's memory while it scores."""
    models = {name: demand.of_model(shape) for name, shape in demand.references.items()}
    parts = [Part(name, model.weights / num_ranks) for name, model in models.items()]
    if demand.scored:
        scorer, num = next(iter(models.values()), demand), demand.scored
        work = scorer.logits(num, trains_head=False) + scorer.sampling_work(1, num)
        parts.append(Part("the teacher's scores", work, "scoring"))
    return parts
