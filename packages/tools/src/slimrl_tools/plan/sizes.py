"""The bytes of each part of a run, as functions of a model's shape and of numbers of tokens.

Suffixes as in the formulas: b bytes of a number in the compute dtype, P weights, T tokens of a row, D hidden width, F
inner width of the MLP, L layers, V vocabulary. Each formula is what the code named with it allocates.
"""

from dataclasses import dataclass

from slimrl.inference.cache import SlotCache
from slimrl.inference.engine import PREFILL_BUDGET
from slimrl.trainer.logprobs import CHUNK
from slimrl_tools.plan.shape import Shape

FLOAT, HALF = 4, 2


@dataclass(frozen=True, slots=True)
class Compute:
    """How a process computes: bytes of a number, on which kind of device, and whether with slimrl's kernels for CPUs
    (`models/native`), of which `has_tiles` are those of AMX and AVX512-BF16."""

    bytes: int
    kind: str = "cpu"
    has_kernels: bool = True
    has_tiles: bool = False

    def fuses(self, shape: Shape) -> bool:
        """Whether the fused forwards compute this model (`models/forward/fused.py`)."""
        return self.kind == "cpu" and self.has_kernels and shape.is_fused


def weights(shape: Shape, compute: Compute) -> int:
    """b P: the module's weights."""
    return compute.bytes * shape.weights


def optimizer(compute: Compute, num_trained: int, is_adapter: bool) -> tuple[int, int]:
    """What float32 masters have beyond the weights, and the moments (`trainer/optim.py`).

    A bfloat16 weight needs 2 bytes more to be a float32 master, a float32 weight none; two moments take 8. Pairs of an
    adapter are float32.
    """
    is_rounded = compute.bytes == HALF and not is_adapter
    return HALF * num_trained * is_rounded, 2 * FLOAT * num_trained


def adapter(shape: Shape, compute: Compute, rank: int, adapted: int) -> int:
    """4 r (K + N) for each pair, and, where the fused forwards compute, b K N for each merged matrix
    (`models/lora.py`). `adapted` are the weights of the adapted matrices; `rank` stands for the pairs' numbers."""
    return FLOAT * rank + (compute.bytes * adapted if compute.fuses(shape) else 0)


def gradients(shape: Shape, compute: Compute, num_trained: int, is_adapter: bool, num_packs: int) -> int:
    """The gradients of a whole step: 4 bytes a trained weight once a second pack has added to the first one's.

    With one pack they are in the dtype that was computed in, but for the head: its chunks, and tied embeddings, add to
    one another.
    """
    if is_adapter or num_packs > 1:
        return FLOAT * num_trained
    return compute.bytes * (num_trained - shape.head) + FLOAT * shape.head


def activations(shape: Shape, compute: Compute, num_tokens: int, recompute: bool = False) -> int:
    """What a forward keeps for the backward pass of a row of T tokens.

    The fused training forward (`models/forward/training.py`) keeps in each layer the inputs of attention and of the MLP
    (2 D), queries and the attention's output (2 Q), keys and values (2 K), and a float32 number for each of two norms
    and for each head; Qwen3's norms of heads keep queries and keys once more. Without the kernels of tiles attention
    keeps its numbers in float32. Elsewhere it is what autograd keeps of the module's own operations (`Shape.saved`).
    With `recompute` each layer keeps its input, and one layer at a time the rest.
    """
    b, inputs = compute.bytes, compute.bytes * shape.hidden
    if compute.fuses(shape):
        heads = 2 * shape.query + 2 * shape.key
        attention = b * heads if compute.has_tiles else FLOAT * heads + (b < FLOAT) * b * shape.query
        norms = (b * (shape.query + shape.key) + FLOAT * shape.heads) if shape.family == "qwen3" else 0
        layer = 2 * inputs + attention + norms + FLOAT * (2 + shape.heads)
    else:
        # In bfloat16 about half of what is kept are float32 numbers of norms, so float32 is not twice as much.
        saved = shape.saved or HALF * shape.layers * (16 * shape.hidden + 4 * shape.query + 4 * shape.inner)
        layer = int(saved / shape.layers * (1.0 if b == HALF else 1.5))
    kept = (shape.layers * inputs + layer) if recompute else shape.layers * layer
    return num_tokens * (kept + 4 * inputs)


def backward_work(shape: Shape, compute: Compute, num_tokens: int) -> int:
    """What the backward pass of one layer's MLP, the widest, holds at once: 6 F + 4 D numbers of a token."""
    return compute.bytes * num_tokens * (6 * shape.inner + 4 * shape.hidden)


def logits(shape: Shape, compute: Compute, num_trained_tokens: int, is_adapter: bool) -> int:
    """The logits of a chunk of trained tokens and the gradient of the head (`trainer/logprobs.py`).

    The kernel for CPUs writes the gradient over the logits, b V. PyTorch's operations make two float32 copies beside
    them. A chunk's gradient of the head is b V D, before it is added to the others.
    """
    rows = min(CHUNK, num_trained_tokens)
    each = compute.bytes if compute.kind == "cpu" and compute.has_kernels else compute.bytes + 2 * FLOAT
    return rows * shape.vocab * each + (0 if is_adapter else compute.bytes * shape.head)


def kv_cache(shape: Shape, compute: Compute, num_slots: int, capacity: int) -> int:
    """2 b L (slots + 1) C K: keys and values of each slot, and of one that belongs to no sequence
    (`inference/cache.py`). C is the capacity in whole blocks."""
    positions = SlotCache(num_slots, capacity).capacity
    return 2 * compute.bytes * shape.layers * (num_slots + 1) * positions * shape.key


def engine_copies(shape: Shape, compute: Compute, quantized: bool = False) -> int:
    """The copies of all matrices and of the head that the engine samples with on a CPU, in the order in which it reads
    them; with `quantized` a byte for each. Other forwards copy nothing."""
    if not compute.fuses(shape):
        return 0
    return (1 if quantized else compute.bytes) * (shape.linear + shape.head)


def sampling_work(shape: Shape, compute: Compute, num_slots: int, num_prefilled: int) -> int:
    """The largest of what one step of the engine holds: a prefill of at most 4,096 tokens, 3 F + 4 D + 2 Q + 2 K
    numbers each, or logits of all slots with a float32 copy."""
    rows = min(PREFILL_BUDGET, num_prefilled)
    prefill = compute.bytes * rows * (3 * shape.inner + 4 * shape.hidden + 2 * shape.query + 2 * shape.key)
    return max(prefill, num_slots * shape.vocab * (compute.bytes + FLOAT))


def checkpoint_work(num_trained: int) -> int:
    """4 bytes a trained weight: a checkpoint holds whole float32 masters, which are put together first."""
    return FLOAT * num_trained


def gather_work(shape: Shape, compute: Compute) -> int:
    """What a rank holds of other ranks' weights at once: what lies outside of the layers, and two layers
    (`trainer/fsdp.py`)."""
    outside = shape.weights - shape.linear
    return compute.bytes * (outside + 2 * shape.linear // shape.layers)
