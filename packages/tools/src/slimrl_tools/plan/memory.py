"""The memory of each process of a run, by part: what it always holds, and what it holds while it does one thing.

A process in which sampling and training take turns needs the larger of the two, not their sum: what one frees the other
uses (`models/allocator.py`). `Demand` says what is asked for; `memory_of` decides which process holds what, on which
device.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from slimrl.config.model import LoraConfig
from slimrl.models.allocator import LARGE
from slimrl_tools.plan import sizes
from slimrl_tools.plan.devices import RESERVED
from slimrl_tools.plan.shape import Shape
from slimrl_tools.plan.sizes import Compute
from slimrl_tools.plan.workload import Rows

Phase = Literal["always", "sampling", "training", "saving", "scoring"]
PHASES: tuple[Phase, ...] = ("sampling", "training", "saving", "scoring")

# Freed memory that malloc keeps on a CPU (`models/allocator.py`). What sampling has freed lies in pieces that do not
# all fit what training needs, and the other way round: so much of the smaller of the two is taken anew. Each step
# leaves further holes, until the heap is trimmed, when the process has grown by a fifth. Measured: docs/plan.md.
NOT_REUSED, HOLES, MOST_KEPT = 0.6, 0.02, 0.38
GPU_GAPS = 0.08  # what PyTorch's allocator on a GPU keeps in blocks that are not quite filled
LOADING = 60_000_000  # tokenizer, chat template and what reading the weights leaves behind


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the memory, and when it is held."""

    name: str
    bytes: float
    phase: Phase = "always"


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """The parts of the memory that a process has on one device, such as `cpu` or `cuda:0`.

    `base` are the bytes of Python and the libraries, or of the CUDA context. `num_steps` are those after which it ends,
    each of which leaves `hole` bytes that no later one fits. One that `sleeps` is there only while the policy samples.
    """

    name: str
    device: str
    base: float
    parts: tuple[Part, ...]
    num_steps: int = 0
    hole: float = 0.0
    sleeps: bool = False

    def inside(self, phase: Phase) -> float:
        """The bytes held in a phase and not always."""
        return sum(part.bytes for part in self.parts if part.phase == phase)

    def bytes_in(self, phase: Phase) -> float:
        """The bytes held in a phase."""
        return sum(part.bytes for part in self.parts if part.phase in ("always", phase))

    @property
    def widest(self) -> Phase:
        """The phase in which it holds the most."""
        return max(PHASES, key=self.bytes_in)

    @property
    def tensors(self) -> float:
        """The most bytes that its tensors take at once, which is what `memory/peak_gb` counts on a GPU."""
        return self.bytes_in(self.widest)

    @property
    def least(self) -> float:
        """The bytes without which it cannot run: those in use at once."""
        return self.base + self.tensors

    @property
    def slack(self) -> float:
        """The bytes that its allocator keeps beside those in use."""
        if self.device != "cpu":
            return GPU_GAPS * self.tensors
        smaller = min(self.inside("sampling"), max(self.inside("training"), self.inside("saving")))
        holes = self.num_steps * max(self.hole, HOLES * self.inside("training"))
        return min(MOST_KEPT * self.least, NOT_REUSED * smaller + holes)

    @property
    def peak(self) -> float:
        """The bytes that it will take, with what its allocator keeps."""
        return self.least + self.slack


@dataclass(frozen=True, slots=True)
class Demand:
    """What a run asks for. `rows` are the packs of a training step; `prefilled` bounds the tokens of one prefill.

    `num_slots` and `seq_len` are the engine's, 0 slots for a run that samples nothing; `quantized` says that it samples
    with bytes. `references` are other models beside the policy, by name; `scored` are the tokens that a teacher reads
    at once, 0 without one. `keeps_cache` is whether the cache is there while the trainer trains.
    """

    shape: Shape
    compute: Compute
    lora: LoraConfig
    rows: Rows
    seq_len: int
    num_slots: int = 0
    prefilled: int = 0
    quantized: bool = False
    recompute: bool = False
    keeps_cache: bool = False
    references: Mapping[str, Shape] | None = None
    scored: int = 0

    @property
    def is_adapter(self) -> bool:
        """Whether an adapter is trained."""
        return self.lora.rank > 0

    @property
    def num_trained(self) -> int:
        """The trained weights."""
        return self.shape.num_trained(self.lora)

    @property
    def num_adapted(self) -> int:
        """The weights of the matrices that an adapter changes."""
        return sum(inputs * outputs for _, inputs, outputs in self.shape.adapter_matrices(self.lora))


def weight_parts(demand: Demand, num_ranks: int = 1) -> list[Part]:
    """The policy's weights, with an adapter's."""
    shape, compute = demand.shape, demand.compute
    parts = [Part("weights", sizes.weights(shape, compute) / num_ranks)]
    if demand.is_adapter:
        adapter = sizes.adapter(shape, compute, demand.num_trained, demand.num_adapted)
        parts.append(Part("adapter", adapter / num_ranks))
    return parts


def training_parts(demand: Demand, num_ranks: int = 1) -> list[Part]:
    """What the trainer has beside the weights, of which each of several ranks has its share."""
    shape, compute, trained, rows = demand.shape, demand.compute, demand.num_trained, demand.rows
    low, moments = sizes.optimizer(compute, trained, demand.is_adapter)
    num_packs = max(2 if num_ranks > 1 else 1, rows.num)  # ranks add gradients up in float32
    gradients = sizes.gradients(shape, compute, trained, demand.is_adapter, num_packs) / num_ranks
    largest = min(rows.largest, -(-rows.tokens // num_ranks))  # fewer packs than ranks are made smaller
    kept = sizes.activations(shape, compute, largest, demand.recompute)
    logits = sizes.logits(shape, compute, min(rows.largest_trained, largest), demand.is_adapter)
    work = sizes.backward_work(shape, compute, largest)
    # In the backward pass of one pack activations go as gradients come; a second pack finds the gradients there.
    at_start, at_end = kept + logits, 0.1 * kept + work
    first = (0.0, gradients) if rows.num == 1 and num_ranks == 1 else (gradients, gradients)
    peak = max(at_start + first[0], at_end + first[1])
    held = gradients if peak == at_end + first[1] or first[0] else 0.0
    rest = max(0.0, peak - held)
    shown = min(logits, rest) if peak == at_start + first[0] else min(work, rest)
    parts = [
        Part("masters of the weights (float32)", low / num_ranks),
        Part("moments of AdamW", moments / num_ranks),
        Part("gradients", held, "training"),
        Part("activations", rest - shown, "training"),
        Part("logits of a chunk, gradient of the head" if peak == at_start + first[0] else "backward pass of a layer",
             shown, "training"),
    ]  # fmt: skip
    if num_ranks > 1:
        parts.append(Part("layers gathered from other ranks", sizes.gather_work(shape, compute), "training"))
    parts.append(Part("whole masters for a checkpoint", sizes.checkpoint_work(trained) / num_ranks, "saving"))
    return [part for part in parts if part.bytes]


def sampling_parts(demand: Demand, alone: bool = False) -> list[Part]:
    """What the engine has beside the weights; always, where it is `alone` in its process."""
    shape, compute = demand.shape, demand.compute
    phase: Phase = "always" if alone else "sampling"
    cache = sizes.kv_cache(shape, compute, demand.num_slots, demand.seq_len)
    parts = [
        Part("KV cache", cache, "always" if demand.keeps_cache else phase),
        Part("the engine's copy of the weights", sizes.engine_copies(shape, compute, demand.quantized), phase),
        Part("prefill and logits", sizes.sampling_work(shape, compute, demand.num_slots, demand.prefilled), "sampling"),
    ]
    return [part for part in parts if part.bytes]


def reference_parts(demand: Demand, num_ranks: int = 1) -> list[Part]:
    """Other models' weights, and what a teacher needs while it scores."""
    found = demand.references or {}
    parts = [Part(name, sizes.weights(shape, demand.compute) / num_ranks) for name, shape in found.items()]
    if demand.scored:
        scorer = next(iter(found.values()), demand.shape)
        work = sizes.logits(scorer, demand.compute, demand.scored, is_adapter=True) + sizes.sampling_work(
            scorer, demand.compute, 1, demand.scored
        )
        parts.append(Part("the teacher's scores", work, "scoring"))
    return parts


def process(
    name: str, device: str, parts: Iterable[Part], base: float, steps: tuple[int, float] = (0, 0.0)
) -> ProcessMemory:
    """A process on a device, with `base` bytes of Python and its libraries; `steps` are the number of its training
    steps and the bytes of the hole that each leaves."""
    own = RESERVED if device.startswith("cuda") else base + LOADING
    return ProcessMemory(name, device, own, tuple(parts), *steps)


def hole_of(demand: Demand) -> float:
    """The bytes of the hole in malloc's heap that a training step leaves: two gradients of the head, of its chunks and
    of embeddings that are tied to it, where these are not large enough to be mapped on their own."""
    gradient = 0 if demand.is_adapter else demand.compute.bytes * demand.shape.head
    return 2.0 * gradient if gradient < LARGE else 0.0


def by_device(processes: Sequence[ProcessMemory]) -> dict[str, list[ProcessMemory]]:
    """The processes on each device."""
    found: dict[str, list[ProcessMemory]] = {}
    for one in processes:
        found.setdefault(one.device, []).append(one)
    return found


def at_once(processes: Sequence[ProcessMemory]) -> float:
    """The bytes that the processes on a device need at once, where those that sleep are awake as the others sample."""
    awake = [one for one in processes if not one.sleeps]
    beside = sum(one.least for one in processes if one.sleeps)
    return max(sum(one.least for one in awake), beside + sum(one.base + one.bytes_in("sampling") for one in awake))
