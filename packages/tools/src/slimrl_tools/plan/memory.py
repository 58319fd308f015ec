"""Computes the bytes that a run needs in the memory of each process, by part and phase.

Symbols in the formulas: b bytes of a number in the compute dtype, P weights, T tokens of a row, D hidden width, F inner
width of the MLP, Q and K widths of queries and keys, L layers, V vocabulary. Each formula follows the allocations of
the code named beside it.

A process that samples and trains in turn needs the memory of the larger phase, not the sum of both phases, because each
phase reuses the memory that the other phase frees (`models/allocator.py`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from slimrl.config.run import RLConfig, SFTConfig
from slimrl.inference.cache import SlotCache
from slimrl.inference.engine import PREFILL_BUDGET, is_kept
from slimrl.models.allocator import LARGE
from slimrl.trainer.logprobs import CHUNK
from slimrl_tools.plan.devices import RESERVED
from slimrl_tools.plan.shape import Shape
from slimrl_tools.plan.workload import Rows

Phase = Literal["always", "sampling", "training", "saving", "scoring"]
PHASES: tuple[Phase, ...] = ("sampling", "training", "saving", "scoring")
FLOAT, HALF = 4, 2

# On a CPU, malloc keeps freed memory (`models/allocator.py`). Sampling and training need blocks of different sizes, so
# a share `NOT_REUSED` of the smaller phase is allocated anew. Each step leaves further holes, until the process has
# grown by a fifth and trims its heap. Measured values: docs/plan.md.
NOT_REUSED, HOLES, MOST_KEPT = 0.6, 0.02, 0.38
GPU_GAPS = 0.08  # share that PyTorch's allocator on a GPU keeps in partly filled blocks
LOADING = 60_000_000  # bytes of the tokenizer, the chat template, and buffers that loading leaves


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the memory, and the phase in which it is allocated."""

    name: str
    bytes: float
    phase: Phase = "always"

    def divided(self, num: float) -> "Part":
        """Return the share of this part on one of `num` devices."""
        return Part(self.name, self.bytes / num, self.phase)


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """The memory of a process on one device, such as `cpu` or `cuda:0`, divided into parts.

    `base` is the bytes of Python and the libraries, or of the CUDA context. The process runs for `num_steps` training
    steps. Each step leaves `hole` bytes in the heap that later steps cannot reuse.
    """

    name: str
    device: str
    base: float
    parts: tuple[Part, ...]
    num_steps: int = 0
    hole: float = 0.0

    def inside(self, phase: Phase) -> float:
        """Return the bytes held only in this phase, without the parts that are always held."""
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
        """Return the peak bytes of the process's tensors, which `memory/peak_gb` measures on a GPU."""
        return self.bytes_in(self.widest)

    @property
    def least(self) -> float:
        """Return the peak bytes in use: the minimum that the process needs."""
        return self.base + self.tensors

    @property
    def peak(self) -> float:
        """Return the expected peak bytes, including freed memory that the allocator keeps."""
        if self.device != "cpu":
            return self.least + GPU_GAPS * self.tensors
        smaller = min(self.inside("sampling"), max(self.inside("training"), self.inside("saving")))
        holes = self.num_steps * max(self.hole, HOLES * self.inside("training"))
        return self.least + min(MOST_KEPT * self.least, NOT_REUSED * smaller + holes)


def process(
    name: str, device: str, parts: Iterable[Part], base: float, steps: tuple[int, float] = (0, 0.0)
) -> ProcessMemory:
    """Return the memory of a process, with `base` bytes for Python and its libraries. `steps` is the number of training
    steps, and the bytes that each step leaves in the heap."""
    own = RESERVED if device.startswith("cuda") else base + LOADING
    return ProcessMemory(name, device, own, tuple(part for part in parts if part.bytes), *steps)


@dataclass(frozen=True, slots=True)
class Compute:
    """The number format and device of a process. `bytes` is the size of a number, and `kind` the kind of device.
    `has_kernels` is True if slimrl's CPU kernels are used (`models/native`), and `has_tiles` if they use AMX or
    AVX512-BF16 tiles."""

    bytes: int
    kind: str = "cpu"
    has_kernels: bool = True
    has_tiles: bool = False

    @property
    def has_native(self) -> bool:
        """Return True if the process computes with slimrl's CPU kernels."""
        return self.kind == "cpu" and self.has_kernels


@dataclass(frozen=True, slots=True)
class Demand:
    """The model and the sizes of a run, which determine its memory and time.

    `references` maps names to the shapes of other models, such as a teacher. `scored` is the number of tokens that a
    teacher reads at once; 0 without a teacher. `device_bytes` is the memory of the GPU that trains; 0 on a CPU.
    """

    config: RLConfig | SFTConfig
    shape: Shape
    compute: Compute
    rows: Rows
    references: Mapping[str, Shape] = field(default_factory=dict)
    scored: int = 0
    device_bytes: float = 0.0

    @property
    def is_adapter(self) -> bool:
        """Return True if an adapter is trained."""
        return self.config.model.lora.rank > 0

    @property
    def recompute(self) -> bool:
        """Return True if the backward pass repeats each layer's forward pass."""
        return (self.config.trainer if isinstance(self.config, RLConfig) else self.config).activation_checkpointing

    @property
    def is_fused(self) -> bool:
        """Return True if slimrl's fused forward passes compute the model (`models/forward/fused.py`)."""
        return self.compute.has_native and self.shape.is_fused

    @property
    def num_trained(self) -> int:
        """Return the number of trained weights."""
        return self.shape.num_trained(self.config.model.lora)

    @property
    def weights(self) -> int:
        """Return the bytes of the module's weights, b P."""
        return self.compute.bytes * self.shape.weights

    @property
    def adapted(self) -> int:
        """Return the bytes of all matrices with an adapter: b times inputs times outputs of each matrix."""
        return self.compute.bytes * sum(a * b for _, a, b in self.shape.adapter_matrices(self.config.model.lora))

    @property
    def hole(self) -> float:
        """Return the bytes of the hole that a training step leaves in malloc's heap: two gradients of the head, one
        from its chunks and one from tied embeddings. Gradients of `LARGE` bytes or more leave no hole, because malloc
        maps them separately."""
        gradient = 0 if self.is_adapter else self.compute.bytes * self.shape.head
        return 2.0 * gradient if gradient < LARGE else 0.0

    def weight_parts(self) -> list[Part]:
        """Return the parts for the policy's weights, and for an adapter's matrices. The fused forward passes also store
        the merged matrices (`models/lora.py`)."""
        adapter = FLOAT * self.num_trained + (self.adapted if self.is_fused else 0) if self.is_adapter else 0
        return [Part("weights", self.weights), Part("adapter", adapter)]

    def sampling_parts(self, alone: bool = False) -> list[Part]:
        """Return the engine's parts beside the weights. An engine that is `alone` in its process always holds its cache
        and its copy of the weights.

        The KV cache has 2 b L (slots + 1) C K bytes: keys and values of each slot and of a spare slot
        (`inference/cache.py`). C is the number of tokens per slot, rounded up to whole blocks. To sample on a CPU, the
        fused forward passes copy all matrices and the head in reading order. Other forward passes copy nothing.
        """
        config, shape, b = self.config, self.shape, self.compute.bytes
        assert isinstance(config, RLConfig)
        slots = config.inference.max_slots
        phase: Phase = "always" if alone else "sampling"
        cache = 2 * b * shape.layers * (slots + 1) * SlotCache(slots, config.seq_len).capacity * shape.key
        is_always = alone or config.async_level > 0 or is_kept(cache, int(self.device_bytes))
        each = b if self.is_fused else 0
        prefilled = min(self.rows.tokens, slots * config.seq_len)
        return [
            Part("KV cache", cache, "always" if is_always else "sampling"),
            Part("the engine's copy of the weights", each * (shape.linear + shape.head), phase),
            Part("prefill and logits", self._sampling_work(slots, prefilled), "sampling"),
        ]

    def reference_parts(self) -> list[Part]:
        """Return the parts for the weights of the models in `references`, and for a teacher's memory while it
        scores."""
        parts = [Part(name, self.compute.bytes * shape.weights) for name, shape in self.references.items()]
        if self.scored:
            scorer = replace(self, shape=next(iter(self.references.values()), self.shape))
            work = scorer._logits(self.scored, trains_head=False) + scorer._sampling_work(1, self.scored)
            parts.append(Part("the teacher's scores", work, "scoring"))
        return parts

    def training_parts(self, num_ranks: int = 1) -> list[Part]:
        """Return the trainer's parts beside the weights, for one of `num_ranks` ranks (FSDP2).

        A bfloat16 weight needs 2 more bytes for its float32 master weight (`trainer/optim.py`). A checkpoint gathers
        all master weights.
        """
        rows, shape, b = self.rows, self.shape, self.compute.bytes
        is_one_pack = rows.num == 1 and num_ranks == 1  # ranks sum gradients in float32
        gradients = self._gradients(is_one_pack) / num_ranks
        largest = min(rows.largest, -(-rows.tokens // num_ranks))  # packs are split if there are fewer packs than ranks
        kept = self.activations(largest)
        # The backward pass needs most memory in a layer's MLP: 6 F + 4 D numbers per token.
        work = b * largest * (6 * shape.inner + 4 * shape.hidden)
        logits = self._logits(min(rows.largest_trained, largest), trains_head=not self.is_adapter)
        # In the backward pass of a single pack, gradients use the memory of freed activations. If there is a second
        # pack, the gradients of the first pack are already stored when it starts.
        at_start = kept + logits + (0.0 if is_one_pack else gradients)
        at_end = 0.1 * kept + work + gradients
        peak, starts = max(at_start, at_end), at_start >= at_end
        held = 0.0 if starts and is_one_pack else gradients
        rest = max(0.0, peak - held)
        shown = min(logits if starts else work, rest)
        # A rank gathers other ranks' weights: all weights outside of the layers, and two layers (`trainer/fsdp.py`).
        gathered = b * (shape.weights - shape.linear + 2 * shape.linear // shape.layers) * (num_ranks > 1)
        masters = HALF * self.num_trained * (b == HALF and not self.is_adapter)
        return [
            Part("masters of the weights (float32)", masters / num_ranks),
            Part("moments of AdamW", 2 * FLOAT * self.num_trained / num_ranks),
            Part("gradients", held, "training"),
            Part("activations", rest - shown, "training"),
            Part(
                "logits of a chunk, gradient of the head" if starts else "backward pass of a layer", shown, "training"
            ),
            Part("layers gathered from other ranks", gathered, "training"),
            Part("whole masters for a checkpoint", FLOAT * self.num_trained / num_ranks, "saving"),
        ]

    def activations(self, num_tokens: int) -> int:
        """Return the bytes that a forward pass over `num_tokens` tokens keeps for the backward pass.

        The fused training forward (`models/forward/training.py`) keeps in each layer the inputs of attention and of the
        MLP (2 D), queries and the attention's output (2 Q), keys and values (2 K), and a float32 number for each of two
        norms and for each head. Qwen3's norms of heads keep queries and keys a second time. Without the tile kernels,
        attention keeps its numbers in float32. Other forward passes keep the tensors that autograd saves for the
        module's own operations (`Shape.saved`). With `recompute`, each layer keeps its input, and only one layer at a
        time keeps the rest.
        """
        shape, b = self.shape, self.compute.bytes
        inputs = b * shape.hidden
        if self.is_fused:
            heads = 2 * shape.query + 2 * shape.key
            attention = b * heads if self.compute.has_tiles else FLOAT * heads + (b < FLOAT) * b * shape.query
            norms = (b * (shape.query + shape.key) + FLOAT * shape.heads) if shape.family == "qwen3" else 0
            layer = 2 * inputs + attention + norms + FLOAT * (2 + shape.heads)
        else:
            # In bfloat16, about half of the saved bytes are float32 numbers of norms, so float32 needs only 1.5 times
            # as much.
            saved = shape.saved or HALF * shape.layers * (16 * shape.hidden + 4 * shape.query + 4 * shape.inner)
            layer = int(saved / shape.layers * (1.0 if b == HALF else 1.5))
        kept = (shape.layers * inputs + layer) if self.recompute else shape.layers * layer
        return num_tokens * (kept + 4 * inputs)

    def _gradients(self, is_one_pack: bool) -> int:
        """Return the bytes of a whole step's gradients: 4 per trained weight if several packs are summed.

        With one pack, gradients have the compute dtype, except for the head: the gradients of its chunks and of tied
        embeddings are summed in float32.
        """
        if self.is_adapter or not is_one_pack:
            return FLOAT * self.num_trained
        return self.compute.bytes * (self.num_trained - self.shape.head) + FLOAT * self.shape.head

    def _logits(self, num_tokens: int, trains_head: bool) -> int:
        """Return the bytes of a chunk's logits and, if `trains_head`, of the head's gradient, b V D
        (`trainer/logprobs.py`).

        The CPU kernel overwrites the logits with their gradient, so it needs b V per token. PyTorch's operations make
        two more copies in float32.
        """
        b = self.compute.bytes
        each = b if self.compute.has_native else b + 2 * FLOAT
        return min(CHUNK, num_tokens) * self.shape.vocab * each + (b * self.shape.head if trains_head else 0)

    def _sampling_work(self, num_slots: int, num_prefilled: int) -> int:
        """Return the peak bytes of an engine step. This is the larger of two numbers: a prefill of at most 4,096 tokens
        with 3 F + 4 D + 2 Q + 2 K numbers per token, or the logits of all slots with a float32 copy."""
        shape, b = self.shape, self.compute.bytes
        widths = 3 * shape.inner + 4 * shape.hidden + 2 * shape.query + 2 * shape.key
        return max(b * min(PREFILL_BUDGET, num_prefilled) * widths, num_slots * shape.vocab * (b + FLOAT))
