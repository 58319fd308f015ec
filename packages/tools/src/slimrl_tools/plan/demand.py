"""A run's demand, and the bytes of each part of it.

Suffixes as in the formulas: b bytes of a number in the compute dtype, P weights, T tokens of a row, D hidden width, F
inner width of the MLP, Q and K widths of queries and keys, L layers, V vocabulary. Each formula is what the code named
with it allocates.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from slimrl.config.model import LoraConfig
from slimrl.inference.cache import SlotCache
from slimrl.inference.engine import PREFILL_BUDGET
from slimrl.models.allocator import LARGE
from slimrl.trainer.logprobs import CHUNK
from slimrl_tools.plan.shape import Shape
from slimrl_tools.plan.workload import Rows

FLOAT, HALF = 4, 2


@dataclass(frozen=True, slots=True)
class Compute:
    """How a process computes: bytes of a number, on which kind of device, and whether with slimrl's kernels for CPUs
    (`models/native`), of which `has_tiles` are those of AMX and AVX512-BF16."""

    bytes: int
    kind: str = "cpu"
    has_kernels: bool = True
    has_tiles: bool = False

    @property
    def has_native(self) -> bool:
        """Whether slimrl's kernels compute."""
        return self.kind == "cpu" and self.has_kernels


@dataclass(frozen=True, slots=True)
class Demand:
    """The model and the sizes of a run. `rows` are the packs of a training step; `prefilled` bounds the tokens of one
    prefill.

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
    references: Mapping[str, Shape] = field(default_factory=dict)
    scored: int = 0

    @property
    def is_adapter(self) -> bool:
        """Whether an adapter is trained."""
        return self.lora.rank > 0

    @property
    def is_fused(self) -> bool:
        """Whether the fused forwards compute the model (`models/forward/fused.py`)."""
        return self.compute.has_native and self.shape.is_fused

    @property
    def num_trained(self) -> int:
        """The number of trained weights."""
        return self.shape.num_trained(self.lora)

    @property
    def adapted(self) -> int:
        """b K N for each matrix with an adapter beside it."""
        return self.compute.bytes * sum(
            inputs * outputs for _, inputs, outputs in self.shape.adapter_matrices(self.lora)
        )

    @property
    def weights(self) -> int:
        """b P: the module's weights."""
        return self.compute.bytes * self.shape.weights

    @property
    def masters(self) -> int:
        """Float32 masters beyond the weights: 2 bytes for a bfloat16 weight, none for float32 (`trainer/optim.py`)."""
        return HALF * self.num_trained * (self.compute.bytes == HALF and not self.is_adapter)

    @property
    def moments(self) -> int:
        """Two moments of AdamW in float32."""
        return 2 * FLOAT * self.num_trained

    @property
    def adapter(self) -> int:
        """An adapter's pairs, and each merged matrix where the fused forwards compute (`models/lora.py`)."""
        return FLOAT * self.num_trained + (self.adapted if self.is_fused else 0) if self.is_adapter else 0

    @property
    def checkpoint(self) -> int:
        """Whole float32 masters, which are put together for a checkpoint."""
        return FLOAT * self.num_trained

    @property
    def gathered(self) -> int:
        """What a rank holds of other ranks' weights at once: the weights outside of the layers, and two layers
        (`trainer/fsdp.py`)."""
        shape = self.shape
        return self.compute.bytes * (shape.weights - shape.linear + 2 * shape.linear // shape.layers)

    @property
    def hole(self) -> float:
        """The hole in malloc's heap that a training step leaves: two gradients of the head, of its chunks and of tied
        embeddings, where these are not large enough to be mapped on their own."""
        gradient = 0 if self.is_adapter else self.compute.bytes * self.shape.head
        return 2.0 * gradient if gradient < LARGE else 0.0

    def gradients(self, num_packs: int) -> int:
        """The gradients of a whole step: 4 bytes a trained weight once a second pack has added to the first one's.

        With one pack they are in the dtype that was computed in, but for the head: its chunks, and tied embeddings, add
        to one another.
        """
        if self.is_adapter or num_packs > 1:
            return FLOAT * self.num_trained
        return self.compute.bytes * (self.num_trained - self.shape.head) + FLOAT * self.shape.head

    def activations(self, num_tokens: int) -> int:
        """What a forward keeps for the backward pass of a row of T tokens.

        The fused training forward (`models/forward/training.py`) keeps in each layer the inputs of attention and of the
        MLP (2 D), queries and the attention's output (2 Q), keys and values (2 K), and a float32 number for each of two
        norms and for each head; Qwen3's norms of heads keep queries and keys once more. Without the kernels of tiles
        attention keeps its numbers in float32. Elsewhere it is what autograd keeps of the module's own operations
        (`Shape.saved`). With `recompute` each layer keeps its input, and one layer at a time the rest.
        """
        shape, b = self.shape, self.compute.bytes
        inputs = b * shape.hidden
        if self.is_fused:
            heads = 2 * shape.query + 2 * shape.key
            attention = b * heads if self.compute.has_tiles else FLOAT * heads + (b < FLOAT) * b * shape.query
            norms = (b * (shape.query + shape.key) + FLOAT * shape.heads) if shape.family == "qwen3" else 0
            layer = 2 * inputs + attention + norms + FLOAT * (2 + shape.heads)
        else:
            # In bfloat16 about half of what is kept are float32 numbers of norms, so float32 is not twice as much.
            saved = shape.saved or HALF * shape.layers * (16 * shape.hidden + 4 * shape.query + 4 * shape.inner)
            layer = int(saved / shape.layers * (1.0 if b == HALF else 1.5))
        kept = (shape.layers * inputs + layer) if self.recompute else shape.layers * layer
        return num_tokens * (kept + 4 * inputs)

    def backward_work(self, num_tokens: int) -> int:
        """What the backward pass of one layer's MLP, the widest, holds at once: 6 F + 4 D numbers of a token."""
        return self.compute.bytes * num_tokens * (6 * self.shape.inner + 4 * self.shape.hidden)

    def logits(self, num_tokens: int, trains_head: bool) -> int:
        """The logits of a chunk of tokens and the gradient of the head, b V D (`trainer/logprobs.py`).

        The kernel for CPUs writes the gradient over the logits, b V. PyTorch's operations make two float32 copies
        beside them.
        """
        b = self.compute.bytes
        each = b if self.compute.has_native else b + 2 * FLOAT
        return min(CHUNK, num_tokens) * self.shape.vocab * each + (b * self.shape.head if trains_head else 0)

    @property
    def kv_cache(self) -> int:
        """2 b L (slots + 1) C K: keys and values of each slot, and of one that belongs to no sequence
        (`inference/cache.py`). C is the capacity in whole blocks."""
        positions = SlotCache(self.num_slots, self.seq_len).capacity if self.num_slots else 0
        return 2 * self.compute.bytes * self.shape.layers * (self.num_slots + 1) * positions * self.shape.key

    @property
    def engine_copies(self) -> int:
        """The copies of all matrices and of the head that the engine samples with on a CPU, in the order in which it
        reads them; quantized, a byte for each. Other forwards copy nothing."""
        each = (1 if self.quantized else self.compute.bytes) if self.is_fused else 0
        return each * (self.shape.linear + self.shape.head)

    def sampling_work(self, num_slots: int, num_prefilled: int) -> int:
        """The largest of what one step of the engine holds: a prefill of at most 4,096 tokens, 3 F + 4 D + 2 Q + 2 K
        numbers each, or logits of all slots with a float32 copy."""
        shape, b = self.shape, self.compute.bytes
        widths = 3 * shape.inner + 4 * shape.hidden + 2 * shape.query + 2 * shape.key
        return max(b * min(PREFILL_BUDGET, num_prefilled) * widths, num_slots * shape.vocab * (b + FLOAT))

    def of_model(self, shape: Shape) -> "Demand":
        """The same demand of another model."""
        return replace(self, shape=shape)
