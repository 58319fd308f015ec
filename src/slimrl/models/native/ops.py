"""Wraps the kernels as functions of tensors. Each function checks its arguments and calls the compiled code.

All tensors of a call are on the CPU and have the same dtype, float32 or bfloat16, unless noted. Matrices are
contiguous. Call these functions only if `available` is true.
"""

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from slimrl.models.native.build import library

PANEL = 32  # outputs in a panel of packed weights
POSITIONS = 32  # positions in a block of the KV cache
PERIOD = 4096  # the number of thresholds for `adamw` must be a multiple of this
ADD, GATE = 1, 2  # epilogues of a product, as in `team.h`; 0 means no epilogue

Argument = Tensor | int | float | ctypes.Structure | ctypes.Array[Any] | None

_SUFFIX = {torch.float32: "f32", torch.bfloat16: "bf16"}


def available(tensor: Tensor) -> bool:
    """Return True if there are kernels for tensors of this device and dtype."""
    return tensor.device.type == "cpu" and tensor.dtype in _SUFFIX and library() is not None


def has_tiles(tensor: Tensor) -> bool:
    """Return True if kernels can multiply matrices like `tensor` in tiles, with AMX or AVX512-BF16."""
    return available(tensor) and tensor.dtype == torch.bfloat16 and _has_tiles()


@functools.cache
def _has_tiles() -> bool:
    kernels = library()
    return kernels is not None and bool(kernels.has_tiles())


def call(name: str, *arguments: Argument) -> None:
    """Call a kernel with tensors as pointers, the other arguments by value, and PyTorch's number of threads last.

    ctypes releases the GIL during the call.
    """
    converted = [_to_ctypes(argument) for argument in arguments]
    getattr(library(), name)(*converted, ctypes.c_int(torch.get_num_threads()))


def _call_typed(name: str, first: Tensor, *arguments: Argument) -> None:
    """Call the kernel for the dtype of the `first` argument."""
    call(f"{name}_{_SUFFIX[first.dtype]}", first, *arguments)


def _to_ctypes(argument: Argument) -> object:
    if isinstance(argument, Tensor):
        return ctypes.c_void_p(argument.data_ptr())
    if isinstance(argument, int):
        return ctypes.c_int64(argument)
    if isinstance(argument, float):
        return ctypes.c_float(argument)
    return argument if argument is None else ctypes.byref(argument)


class Weights(ctypes.Structure):
    """The C++ struct `Weights` (`team.h`): pointers to a product's weights, and their numbers of inputs and outputs."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("packed", "bias")),
        *((name, ctypes.c_int64) for name in ("inputs", "outputs")),
    )


class Packed:
    """A copy of the weights of linear layers with the same input, in the order in which the kernels read tiles.

    `together` are the layers' weights (N_i, K), and `biases` their biases (N_i) or empty. Training updates both in
    place. `halves` means that there are two layers, gate and up, and that the result is silu(gate) up.

    Call `refresh` after the layers' weights have changed. The copy consists of `panels`, each for `PANEL` outputs.
    `offload` frees the copy until the next use. K is a multiple of 32 and every N_i a multiple of 16.
    """

    def __init__(self, together: Sequence[Tensor], halves: bool = False, biases: Sequence[Tensor] = ()) -> None:
        assert all(packable(weight) for weight in together) and (not halves or len(together) == 2), together
        self._together = together
        self._halves = halves
        self._biases = biases
        self.outputs = sum(len(weight) for weight in together)
        self.inputs = together[0].shape[1]
        self.panels: Tensor | None = None
        self._bias: Tensor | None = None

    def offload(self) -> None:
        self.panels = self._bias = None

    def refresh(self) -> None:
        if self.panels is None:
            # Zeros, because the kernel reads whole panels: the padding of the last panel must be finite.
            outputs = -(-self.outputs // PANEL) * PANEL
            self.panels = torch.zeros(outputs * self.inputs, dtype=torch.bfloat16)
        self._bias = torch.cat(list(self._biases)) if self._biases else None
        first = 0  # first output of the next layer in the joint product
        for number, weight in enumerate(self._together):
            half = number if self._halves else -1
            call("pack", weight, len(weight), self.inputs, first, half, self.panels)
            first += len(weight)

    def weights(self) -> Weights:
        """Return the struct for kernels. Its pointers are valid until the next `refresh` or `offload`."""
        if self.panels is None:
            self.refresh()
        parts = self.panels, self._bias
        return Weights(*(None if part is None else part.data_ptr() for part in parts), self.inputs, self.outputs)

    def __call__(self, x_TK: Tensor, plus: Tensor | None = None) -> Tensor:
        """Return the product (T, N) plus `plus` (T, N) or the bias. With `halves`, return silu(gate) up (T, N / 2)."""
        width = self.outputs // 2 if self._halves else self.outputs
        out = torch.empty(len(x_TK), width, dtype=x_TK.dtype)
        epilogue = GATE if self._halves else 0 if plus is None else ADD
        call("product", x_TK, len(x_TK), self.weights(), out, plus, epilogue)
        return out


def packable(weight: Tensor) -> bool:
    """Return True if `Packed` supports these weights (N, K)."""
    return has_tiles(weight) and weight.is_contiguous() and weight.shape[1] % 32 == 0 and weight.shape[0] % 16 == 0


def norm(x: Tensor, weight: Tensor, eps: float, out: Tensor | None = None) -> Tensor:
    """Return RMSNorm (1910.07467), weight x / rms(x) over the last dimension of (T, D) or (T, H, D).

    The first dimension may have any stride. The result is written to `out` if it is given; `out` may be `x` itself.
    """
    result = torch.empty(x.shape, dtype=x.dtype) if out is None else out
    _norm(x, weight, eps, result, None)
    return result


def norm_forward(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return RMSNorm, contiguous, and 1 / rms(x) of every row (float32), which the backward pass needs."""
    result, scales = torch.empty(x.shape, dtype=x.dtype), torch.empty(x.shape[:-1], dtype=torch.float32)
    _norm(x, weight, eps, result, scales)
    return result, scales


def _norm(x: Tensor, weight: Tensor, eps: float, out: Tensor, scales: Tensor | None) -> None:
    *_, D = x.shape
    inner = x.shape[1] if x.dim() == 3 else 1
    rows = x.numel() // D
    # Row r is at r // inner * stride + r % inner * D: a token's heads are contiguous, tokens need not be.
    _call_typed("norm", x, weight, eps, out, scales, rows, inner, x.stride(0), out.stride(0), D)


def norm_backward(
    grad: Tensor, x: Tensor, weight: Tensor, scales: Tensor, plus: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the gradients of RMSNorm for `x` (plus `plus` if given) and for `weight`. `scales` are from
    `norm_forward`. All tensors are contiguous."""
    grad_x, grad_weight = torch.empty_like(x), torch.empty(weight.shape, dtype=torch.float32)
    D = x.shape[-1]
    _call_typed("norm_backward", grad, x, weight, scales, plus, grad_x, grad_weight, x.numel() // D, D)
    return grad_x, grad_weight.to(weight.dtype)


def rotate(x_THD: Tensor, cos: Tensor, sin: Tensor, out: Tensor | None = None, back: bool = False) -> Tensor:
    """Apply rotary positions (2104.09864): return (a cos - b sin, b cos + a sin) for the halves (a, b) of every head.

    `cos` and `sin` are (T, D / 2). `out` may be `x_THD`. `back` rotates by the opposite angle, for the backward pass.
    """
    T, H, D = x_THD.shape
    result = torch.empty(T, H, D, dtype=x_THD.dtype) if out is None else out
    strides = x_THD.stride(0), result.stride(0)
    _call_typed("rotate", x_THD, result, cos, sin, -1.0 if back else 1.0, T, H, D, *strides)
    return result


def gate_mix(gate: Tensor, up: Tensor) -> Tensor:
    """Return the gated activation silu(gate) up, elementwise (SwiGLU, 2002.05202)."""
    mixed = torch.empty_like(gate)
    _call_typed("gate_mix", gate, up, mixed, gate.numel())
    return mixed


def gate_backward(grad: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of `gate` and `up`, and the result of `gate_mix`, recomputed. The gradient of `gate`
    overwrites `grad`."""
    grad_up, mixed = torch.empty_like(up), torch.empty_like(up)
    _call_typed("gate_backward", grad, gate, up, grad, grad_up, mixed, gate.numel())
    return grad, grad_up, mixed


def sample(logits_NV: Tensor, temperature_N: Tensor, uniform_N: Tensor) -> tuple[Tensor, Tensor]:
    """Draw one token (int64) per row from softmax(logits / temperature). Return the tokens and their log-probabilities
    (float32).

    `uniform_N`, float64 in [0, 1), decides the draw (inverse CDF). Where `temperature_N` (float32) is 0, the token is
    the first one with the largest logit.
    """
    N, V = logits_NV.shape
    token_N, logprob_N = torch.empty(N, dtype=torch.int64), torch.empty(N, dtype=torch.float32)
    _call_typed("sample", logits_NV, temperature_N, uniform_N, token_N, logprob_N, N, V)
    return token_N, logprob_N


def logprobs(logits_NV: Tensor, target_N: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return three tensors (N,), float32, for softmax(logits / temperature): the log-sum-exp, the log-probabilities of
    the targets, and the entropy."""
    N, V = logits_NV.shape
    results = torch.empty(3, N, dtype=torch.float32)
    logsumexp_N, logprob_N, entropy_N = results
    _call_typed("logprobs", logits_NV, target_N, temperature, logsumexp_N, logprob_N, entropy_N, N, V)
    return logsumexp_N, logprob_N, entropy_N


def logprobs_backward(
    logits_NV: Tensor, target_N: Tensor, weight_N: Tensor, temperature: float, logsumexp_N: Tensor
) -> None:
    """Overwrite the logits with their gradient. `weight_N` (float32) is d loss / d logprob, divided by the temperature.
    `logsumexp_N` is from `logprobs`."""
    N, V = logits_NV.shape
    _call_typed("logprobs_backward", logits_NV, target_N, weight_N, temperature, logsumexp_N, N, V)


class AdamWSettings(ctypes.Structure):
    """The settings of one AdamW update. `mean_left` is 1 - beta1^t, `square_left` is 1 - beta2^t, and `clip` is a
    factor of the gradient."""

    _fields_ = tuple(
        (name, ctypes.c_float) for name in ("lr", "beta1", "beta2", "eps", "decay", "clip", "mean_left", "square_left")
    )


@dataclass(frozen=True, slots=True)
class Master:
    """A flat weight with its optimizer state, see `trainer/optim.py`.

    A bfloat16 weight and `low`, the lower 16 bits, form a float32 master; for a float32 weight `low` is None.
    `threshold` (int32) decides the rounding of the weight. `mean` and `square` (float32) are AdamW's moments.
    """

    weight: Tensor
    low: Tensor | None
    threshold: Tensor
    mean: Tensor
    square: Tensor


def adamw(master: Master, gradient: Tensor, settings: AdamWSettings) -> None:
    """Update the weight and its state in `master` in place. `gradient` is float32 or has the weight's dtype."""
    weight = master.weight
    assert len(master.threshold) % PERIOD == 0 and gradient.numel() == weight.numel()
    # The kernel has one pointer for each dtype of the gradient; the other one is null.
    exact, rough = (gradient, None) if gradient.dtype == torch.float32 else (None, gradient)
    state = master.low, master.threshold, len(master.threshold), master.mean, master.square
    _call_typed("adamw", weight, *state, rough, exact, weight.numel(), settings)


def blocks_fit(heads: Tensor) -> bool:
    """Return True if the attention kernels below support heads (..., D)."""
    return has_tiles(heads) and heads.shape[-1] % 64 == 0


def store(key: Tensor, value: Tensor, keys: Tensor, values: Tensor, spans: Tensor) -> None:
    """Write new tokens' keys and values (T, H_kv, D) to a layer's cache (slots, capacity, H_kv D).

    A row of `spans` (S, 4), int32, has a slot, the row of the slot's first new token in `key`, the number of its new
    tokens, and the position of the first. The capacity is a multiple of `POSITIONS`.
    """
    _T, H_kv, D = key.shape
    assert blocks_fit(key) and key[0].is_contiguous() and value[0].is_contiguous()
    assert len(key) == 1 or key.stride(0) == value.stride(0)
    call("store", key, value, key.stride(0), keys, values, spans, len(spans), keys.shape[1], H_kv, D)


def attend(query_THD: Tensor, keys: Tensor, values: Tensor, spans: Tensor, scale: float, window: int) -> Tensor:
    """Return the attention output (T, H, D) of new tokens. Each token attends to its own position and all earlier
    positions of its slot. Call `store` for the new tokens first.

    A `window` > 0 limits the attention of each token to the latest `window` positions.
    """
    T, H, D = query_THD.shape
    assert blocks_fit(query_THD) and query_THD[0].is_contiguous()
    out = torch.empty(T, H, D, dtype=query_THD.dtype)
    _slots, capacity, width = keys.shape
    shape = len(spans), capacity, H, width // D, D
    call("attend", query_THD, query_THD.stride(0), keys, values, out, spans, *shape, float(scale), window)
    return out


@dataclass(frozen=True, slots=True)
class Segments:
    """The segments of a packed row of tokens, a forest: a prompt is a segment, and its completions are its children.

    A row of `rows` (S, 4), int32, describes one segment: its first token in the packed row, its length, its parent (-1
    for none), and the position of its first token in the sequence. A token attends to all ancestors of its segment, and
    causally to its own segment. For a prompt of 3 tokens and two completions of 2: [[0, 3, -1, 0], [3, 2, 0, 3], [5, 2,
    0, 3]].
    """

    rows: Tensor
    scale: float
    window: int


def attend_packed(query: Tensor, key: Tensor, value: Tensor, segments: Segments) -> tuple[Tensor, Tensor]:
    """Return attention (T, H, D) within a packed row, and the log-sum-exp (T, H) of its scores, for the backward pass.

    query is (T, H, D), key and value (T, H_kv, D), all contiguous.
    """
    out, logsumexp = torch.empty_like(query), torch.empty(query.shape[:2], dtype=torch.float32)
    call("packed_attend", query, key, value, out, logsumexp, *_segment_arguments(query, key, segments))
    return out, logsumexp


def attend_packed_backward(
    inputs: Sequence[Tensor], out: Tensor, logsumexp: Tensor, grad: Tensor, segments: Segments
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of the `inputs` (query, key, value), given the gradient of `out`."""
    query, key, value = inputs
    grads = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
    shape = _segment_arguments(query, key, segments)
    call("packed_backward", query, key, value, out, grad, logsumexp, *grads, *shape)
    return grads


def _segment_arguments(query: Tensor, key: Tensor, segments: Segments) -> tuple[Tensor | int | float, ...]:
    assert blocks_fit(query) and query.is_contiguous() and key.is_contiguous()
    (T, H, D), H_kv, rows = query.shape, key.shape[1], segments.rows
    return rows, len(rows), T, H, H_kv, D, float(segments.scale), segments.window
