"""Computes the bytes of each part of a run.

Symbols in the formulas: b bytes of a number in the compute dtype, P weights, T tokens of a row, D hidden width, F inner
width of the MLP, Q and K widths of queries and keys, L layers, V vocabulary. Each formula follows the allocations of
the code named beside it.
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
    """How a process computes: bytes of a number, kind of device, and True for slimrl's CPU kernels (`models/native`)
    and for their variant with AMX and AVX512-BF16 tiles (`has_tiles`)."""

    bytes: int
    kind: str = "cpu"
    has_kernels: bool = True
    has_tiles: bool = False

    @property
    def has_native(self) -> bool:
        """Return True if slimrl's kernels compute."""
        return self.kind == "cpu" and self.has_kernels


@dataclass(frozen=True, slots=True)
class Demand:
    """The model and the sizes of a run. `rows` are the packs of a training step; `prefilled` bounds the tokens of one
    prefill.

    `num_slots` and `seq_len` belong to the engine; `num_slots` is 0 for a run without sampling. `quantized` is True if
    it samples with one byte per weight. `references` maps names to the other models beside the policy. `scored` is the
    number of tokens that a teacher reads at once, 0 without one. `keeps_cache` is True if the cache stays allocated
    during training.
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
        """Return True if an adapter is trained."""
        return self.lora.rank > 0

    @property
    def is_fused(self) -> bool:
        """Return True if the fused forwards compute the model (`models/forward/fused.py`)."""
        return self.compute.has_native and self.shape.is_fused

    @property
    def num_trained(self) -> int:
        """Return the number of trained weights."""
        return self.shape.num_trained(self.lora)

    @property
    def adapted(self) -> int:
        """Return b K N, summed over the matrices with an adapter."""
        return self.compute.bytes * sum(
            inputs * outputs for _, inputs, outputs in self.shape.adapter_matrices(self.lora)
        )

    @property
    def weights(self) -> int:
        """Return b P, the bytes of the module's weights."""
        return self.compute.bytes * self.shape.weights

    @property
    def masters(self) -> int:
        """Return the bytes of float32 masters beside the weights: 2 a bfloat16 weight, else 0 (`trainer/optim.py`)."""
        return HALF * self.num_trained * (self.compute.bytes == HALF and not self.is_adapter)

    @property
    def moments(self) -> int:
        """Return the bytes of AdamW's two moments in float32."""
        return 2 * FLOAT * self.num_trained

    @property
    def adapter(self) -> int:
        """Return the bytes of an adapter's pairs, and of merged matrices for the fused forwards (`models/lora.py`)."""
        return FLOAT * self.num_trained + (self.adapted if self.is_fused else 0) if self.is_adapter else 0

    @property
    def checkpoint(self) -> int:
        """Return the bytes of all float32 masters, which a checkpoint gathers."""
        return FLOAT * self.num_trained

    @property
    def gathered(self) -> int:
        """Return the bytes of other ranks' weights that a rank holds at once: the weights outside of the layers, and
        two layers (`trainer/fsdp.py`)."""
        shape = self.shape
        return self.compute.bytes * (shape.weights - shape.linear + 2 * shape.linear // shape.layers)

    @property
    def hole(self) -> float:
        """Return the bytes of the hole that a training step leaves in malloc's heap: two gradients of the head, from
        its chunks and from tied embeddings, unless they are large enough for mappings of their own."""
        gradient = 0 if self.is_adapter else self.compute.bytes * self.shape.head
        return 2.0 * gradient if gradient < LARGE else 0.0

    def gradients(self, num_packs: int) -> int:
        """Return the bytes of a whole step's gradients: 4 per trained weight once a second pack is added to the first.

        With one pack they have the compute dtype, except for the head: gradients of its chunks and of tied embeddings
        add up in float32.
        """
        if self.is_adapter or num_packs > 1:
            return FLOAT * self.num_trained
        return self.compute.bytes * (self.num_trained - self.shape.head) + FLOAT * self.shape.head

    def activations(self, num_tokens: int) -> int:
        """Return the bytes that a forward keeps for the backward pass of a row of T tokens.

        The fused training forward (`models/forward/training.py`) keeps in each layer the inputs of attention and of the
        MLP (2 D), queries and the attention's output (2 Q), keys and values (2 K), and a float32 number for each of two
        norms and for each head; Qwen3's norms of heads keep queries and keys once more. Without the tile kernels
        attention keeps its numbers in float32. Other forwards keep the tensors that autograd saves for the module's own
        operations (`Shape.saved`). With `recompute` each layer keeps its input, and one layer at a time the rest.
        """
        shape, b = self.shape, self.compute.bytes
        inputs = b * shape.hidden
        if self.is_fused:
            heads = 2 * shape.query + 2 * shape.key
            attention = b * heads if self.compute.has_tiles else FLOAT * heads + (b < FLOAT) * b * shape.query
            norms = (b * (shape.query + shape.key) + FLOAT * shape.heads) if shape.family == "qwen3" else 0
            layer = 2 * inputs + attention + norms + FLOAT * (2 + shape.heads)
        else:
            # In bfloat16 about half of the saved bytes are float32 numbers of norms, so float32 does not double them.
            saved = shape.saved or HALF * shape.layers * (16 * shape.hidden + 4 * shape.query + 4 * shape.inner)
            layer = int(saved / shape.layers * (1.0 if b == HALF else 1.5))
        kept = (shape.layers * inputs + layer) if self.recompute else shape.layers * layer
        return num_tokens * (kept + 4 * inputs)

    def backward_work(self, num_tokens: int) -> int:
        """Return the peak bytes in the backward pass of a layer's MLP, its widest part: 6 F + 4 D numbers per token."""
        return self.compute.bytes * num_tokens * (6 * self.shape.inner + 4 * self.shape.hidden)

    def logits(self, num_tokens: int, trains_head: bool) -> int:
        """Return the bytes of a token chunk's logits and of the head's gradient, b V D (`trainer/logprobs.py`).

        The CPU kernel overwrites the logits with their gradient, b V. PyTorch's operations make two float32 copies
        beside them.
        """
        b = self.compute.bytes
        each = b if self.compute.has_native else b + 2 * FLOAT
        return min(CHUNK, num_tokens) * self.shape.vocab * each + (b * self.shape.head if trains_head else 0)

    @property
    def kv_cache(self) -> int:
        """Return 2 b L (slots + 1) C K: keys and values of each slot, and of a spare one (`inference/cache.py`). C is
        the capacity in whole blocks."""
        positions = SlotCache(self.num_slots, self.seq_len).capacity if self.num_slots else 0
        return 2 * self.compute.bytes * self.shape.layers * (self.num_slots + 1) * positions * self.shape.key

    @property
    def engine_copies(self) -> int:
        """Return the bytes of the engine's copies of all matrices and the head, stored in reading order to sample on a
        CPU; 1 byte per weight if quantized. Other forwards copy nothing."""
        each = (1 if self.quantized else self.compute.bytes) if self.is_fused else 0
        return each * (self.shape.linear + self.shape.head)

    def sampling_work(self, num_slots: int, num_prefilled: int) -> int:
        """Return the larger of two peaks of an engine step: a prefill of at most 4,096 tokens, 3 F + 4 D + 2 Q + 2 K
        numbers each, or the logits of all slots with a float32 copy."""
        shape, b = self.shape, self.compute.bytes
        widths = 3 * shape.inner + 4 * shape.hidden + 2 * shape.query + 2 * shape.key
        return max(b * min(PREFILL_BUDGET, num_prefilled) * widths, num_slots * shape.vocab * (b + FLOAT))

    def of_model(self, shape: Shape) -> "Demand":
        """Return the same demand for another model."""
        return replace(self, shape=shape)
