"""The kernels as functions of tensors: they check what they are given and call the compiled code.

Every tensor is on the CPU and has one dtype, float32 or bfloat16, unless said otherwise; matrices are contiguous. Where
`available` says no, none of these may be called.
"""

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from slimrl.models.native.build import library

PANEL = 32  # outputs that the weights of a product are packed by
WHOLE_LINE = 64  # inputs that they are packed by where they are quantised
POSITIONS = 32  # that a block of the cache consists of
PERIOD = 4096  # the length of thresholds for `adamw` is a multiple of it

Argument = Tensor | int | float | ctypes.Structure | ctypes.Array[Any] | None

_SUFFIX = {torch.float32: "f32", torch.bfloat16: "bf16"}


def available(tensor: Tensor) -> bool:
    """Whether there are kernels for such tensors."""
    return tensor.device.type == "cpu" and tensor.dtype in _SUFFIX and library() is not None


def has_tiles(tensor: Tensor) -> bool:
    """Whether there are kernels for such tensors that multiply them in tiles: with AMX, or with AVX512-BF16."""
    return available(tensor) and tensor.dtype == torch.bfloat16 and _has_tiles()


@functools.cache
def _has_tiles() -> bool:
    kernels = library()
    return kernels is not None and bool(kernels.has_tiles())


def call(name: str, *arguments: Argument) -> None:
    """Call a kernel with tensors as pointers, the other arguments by value, and PyTorch's number of threads last."""
    converted = [_to_ctypes(argument) for argument in arguments]
    getattr(library(), name)(*converted, ctypes.c_int(torch.get_num_threads()))


def _to_ctypes(argument: Argument) -> object:
    if isinstance(argument, Tensor):
        return ctypes.c_void_p(argument.data_ptr())
    if isinstance(argument, int):
        return ctypes.c_int64(argument)
    if isinstance(argument, float):
        return ctypes.c_float(argument)
    return argument if argument is None else ctypes.byref(argument)


class Weights(ctypes.Structure):
    """The weights of a product as kernels get them: pointers, and how many inputs and outputs there are."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("packed", "scales", "bias")),
        *((name, ctypes.c_int64) for name in ("inputs", "outputs")),
    )


@dataclass(frozen=True, slots=True)
class _Copies:
    """Of a product's weights, in panels of `PANEL` outputs: bfloat16, or int8 with each output's scale (float32). The
    layers' biases are one."""

    panels: Tensor
    scales: Tensor | None
    bias: Tensor | None


class Packed:
    """The weights of linear layers with one input, in the order in which tiles of them are read.

    `together` (N_i, K) are the layers' weights and `biases` (N_i), if any, their biases, which change in place;
    `halves` says that there are two, a gate and what it gates; `quantized`, that half as much is read, as each output's
    weights are rounded to whole numbers from -127 to 127 times a scale, and each row of inputs to such from -32767 to
    32767. `refresh` after they have changed; `offload` lets go of the copy, until it is needed or refreshed. K is a
    multiple of 32 and every N_i one of 16.
    """

    def __init__(
        self, together: Sequence[Tensor], halves: bool = False, biases: Sequence[Tensor] = (), quantized: bool = False
    ) -> None:
        assert all(packable(weight) for weight in together) and (not halves or len(together) == 2), together
        self._together = together
        self._halves = halves
        self._biases = biases
        self._quantized = quantized
        self.outputs = sum(len(weight) for weight in together)
        self.inputs = together[0].shape[1]
        self._copies: _Copies | None = None

    def offload(self) -> None:
        self._copies = None

    def refresh(self) -> None:
        panels, scales = (self._copies.panels, self._copies.scales) if self._copies else self._room()
        self._copies = _Copies(panels, scales, torch.cat(list(self._biases)) if self._biases else None)
        first = 0
        for number, weight in enumerate(self._together):
            half = number if self._halves else -1
            call("pack", weight, len(weight), self.inputs, first, half, panels, scales)
            first += len(weight)

    def _room(self) -> tuple[Tensor, Tensor | None]:
        outputs = -(-self.outputs // PANEL) * PANEL
        if not self._quantized:
            return torch.zeros(outputs * self.inputs, dtype=torch.bfloat16), None
        inputs = -(-self.inputs // WHOLE_LINE) * WHOLE_LINE
        return torch.zeros(outputs * inputs, dtype=torch.int8), torch.zeros(outputs)

    def weights(self) -> Weights:
        """What kernels get; to be used before the next `refresh` or `offload`."""
        if self._copies is None:
            self.refresh()
        copies = self._copies
        assert copies is not None
        parts = copies.panels, copies.scales, copies.bias
        return Weights(*(None if part is None else part.data_ptr() for part in parts), self.inputs, self.outputs)

    def __call__(self, x_TK: Tensor, plus: Tensor | None = None) -> Tensor:
        """(T, N): the product, plus `plus` (T, N) or else the bias. Of halves (T, N / 2): silu(gate) up."""
        width = self.outputs // 2 if self._halves else self.outputs
        out = torch.empty(len(x_TK), width, dtype=x_TK.dtype)
        then = 2 if self._halves else 0 if plus is None else 1
        call("product", x_TK, len(x_TK), self.weights(), out, plus, then)
        return out


def packable(weight: Tensor) -> bool:
    """Whether `Packed` takes these weights (N, K)."""
    return has_tiles(weight) and weight.is_contiguous() and weight.shape[1] % 32 == 0 and weight.shape[0] % 16 == 0


def norm(x: Tensor, weight: Tensor, eps: float, out: Tensor | None = None) -> Tensor:
    """weight x / rms(x) over the last dimension of (T, D) or (T, H, D), whose tokens need not be neighbours. `out`,
    which may be `x`, is such a tensor too."""
    result = torch.empty(x.shape, dtype=x.dtype) if out is None else out
    _norm(x, weight, eps, result, None)
    return result


def norm_forward(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The same, contiguous, and 1 / rms(x) (rows), float32, which the backward pass needs."""
    result, scales = torch.empty(x.shape, dtype=x.dtype), torch.empty(x.shape[:-1], dtype=torch.float32)
    _norm(x, weight, eps, result, scales)
    return result, scales


def _norm(x: Tensor, weight: Tensor, eps: float, out: Tensor, scales: Tensor | None) -> None:
    *_, D = x.shape
    inner = x.shape[1] if x.dim() == 3 else 1
    rows = x.numel() // D
    name = f"norm_{_SUFFIX[x.dtype]}"
    call(name, x, weight, eps, out, scales, rows, inner, x.stride(0), out.stride(0), D)


def norm_backward(
    grad: Tensor, x: Tensor, weight: Tensor, scales: Tensor, plus: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Gradients of `x`, plus `plus` where it is given, and of the weight. All contiguous."""
    grad_x, grad_weight = torch.empty_like(x), torch.empty(weight.shape, dtype=torch.float32)
    D = x.shape[-1]
    name = f"norm_backward_{_SUFFIX[x.dtype]}"
    call(name, grad, x, weight, scales, plus, grad_x, grad_weight, x.numel() // D, D)
    return grad_x, grad_weight.to(weight.dtype)


def rotate(x_THD: Tensor, cos: Tensor, sin: Tensor, out: Tensor | None = None, back: bool = False) -> Tensor:
    """Rotary positions: (a, b) -> (a cos - b sin, b cos + a sin) for the halves a, b of every head. `cos` and `sin` are
    (T, D / 2). `out` may be `x_THD`; `back` turns the other way, which is the gradient."""
    T, H, D = x_THD.shape
    result = torch.empty(T, H, D, dtype=x_THD.dtype) if out is None else out
    strides = x_THD.stride(0), result.stride(0)
    call(f"rotate_{_SUFFIX[x_THD.dtype]}", x_THD, result, cos, sin, -1.0 if back else 1.0, T, H, D, *strides)
    return result


def gate_mix(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) up."""
    mixed = torch.empty_like(gate)
    call(f"gate_mix_{_SUFFIX[gate.dtype]}", gate, up, mixed, gate.numel())
    return mixed


def gate_backward(grad: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of `gate` and `up`, and `gate_mix` once more. Overwrites `grad`, which becomes the first of them."""
    grad_up, mixed = torch.empty_like(up), torch.empty_like(up)
    call(f"gate_backward_{_SUFFIX[gate.dtype]}", grad, gate, up, grad, grad_up, mixed, gate.numel())
    return grad, grad_up, mixed


def sample(logits_NV: Tensor, temperature_N: Tensor, uniform_N: Tensor) -> tuple[Tensor, Tensor]:
    """A token (int64) and its log-probability (float32) for each row: drawn from softmax(logits / temperature) by the
    number in [0, 1), float64; the first of the largest logits where the temperature (float32) is 0."""
    N, V = logits_NV.shape
    token_N, logprob_N = torch.empty(N, dtype=torch.int64), torch.empty(N, dtype=torch.float32)
    call(f"sample_{_SUFFIX[logits_NV.dtype]}", logits_NV, temperature_N, uniform_N, token_N, logprob_N, N, V)
    return token_N, logprob_N


def logprobs(logits_NV: Tensor, target_N: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """Of softmax(logits / temperature), float32: the log-sum-exp, the targets' log-probabilities, and the entropy."""
    N, V = logits_NV.shape
    results = torch.empty(3, N, dtype=torch.float32)
    logsumexp_N, logprob_N, entropy_N = results
    name = f"logprobs_{_SUFFIX[logits_NV.dtype]}"
    call(name, logits_NV, target_N, temperature, logsumexp_N, logprob_N, entropy_N, N, V)
    return logsumexp_N, logprob_N, entropy_N


def logprobs_backward(
    logits_NV: Tensor, target_N: Tensor, weight_N: Tensor, temperature: float, logsumexp_N: Tensor
) -> None:
    """Logits become their gradient, given that of the log-probabilities over the temperature, `weight_N` (float32)."""
    N, V = logits_NV.shape
    name = f"logprobs_backward_{_SUFFIX[logits_NV.dtype]}"
    call(name, logits_NV, target_N, weight_N, temperature, logsumexp_N, N, V)


class AdamWSettings(ctypes.Structure):
    """One update of AdamW: `mean_left` and `square_left` are 1 - beta^t, `clip` is what multiplies gradients."""

    _fields_ = tuple(
        (name, ctypes.c_float) for name in ("lr", "beta1", "beta2", "eps", "decay", "clip", "mean_left", "square_left")
    )


@dataclass(frozen=True, slots=True)
class Master:
    """A flat weight with its master's lower halves (int16; None for float32), the thresholds of its rounding (int32)
    and AdamW's moments (float32). See `trainer/optim.py`."""

    weight: Tensor
    low: Tensor | None
    threshold: Tensor
    mean: Tensor
    square: Tensor


def adamw(master: Master, gradient: Tensor, settings: AdamWSettings) -> None:
    """One update. The gradient is float32 or of the weight's dtype."""
    weight = master.weight
    assert len(master.threshold) % PERIOD == 0 and gradient.numel() == weight.numel()
    exact, rough = (gradient, None) if gradient.dtype == torch.float32 else (None, gradient)
    state = weight, master.low, master.threshold, len(master.threshold), master.mean, master.square
    call(f"adamw_{_SUFFIX[weight.dtype]}", *state, rough, exact, weight.numel(), settings)


def blocks_fit(heads: Tensor) -> bool:
    """Whether the kernels below take heads (..., D)."""
    return has_tiles(heads) and heads.shape[-1] % 64 == 0


def store(key: Tensor, value: Tensor, keys: Tensor, values: Tensor, spans: Tensor) -> None:
    """Write new tokens' keys and values (T, H_kv, D) to a layer's cache (slots, capacity, H_kv D), the capacity a
    multiple of `POSITIONS`. Each of `spans` (S, 4), int32, is a slot, the first row of its tokens, how many they are,
    and the position of the first."""
    _T, H_kv, D = key.shape
    assert blocks_fit(key) and key[0].is_contiguous() and value[0].is_contiguous()
    assert len(key) == 1 or key.stride(0) == value.stride(0)
    call("store", key, value, key.stride(0), keys, values, spans, len(spans), keys.shape[1], H_kv, D)


def attend(query_THD: Tensor, keys: Tensor, values: Tensor, spans: Tensor, scale: float, window: int) -> Tensor:
    """Attention (T, H, D) of new tokens, whose keys and values are stored, to their slots' positions up to their own;
    to the latest `window` of them if that is not 0."""
    T, H, D = query_THD.shape
    assert blocks_fit(query_THD) and query_THD[0].is_contiguous()
    out = torch.empty(T, H, D, dtype=query_THD.dtype)
    _slots, capacity, width = keys.shape
    shape = len(spans), capacity, H, width // D, D
    call("attend", query_THD, query_THD.stride(0), keys, values, out, spans, *shape, float(scale), window)
    return out


@dataclass(frozen=True, slots=True)
class Segments:
    """How a packed row of tokens is divided, for attention within it. `rows` (S, 4), int32: a stretch's first token,
    how many there are, which stretch it continues, or -1, and the position of the first. It sees all of that one, of
    what that one continues, and so on, before itself."""

    rows: Tensor
    scale: float
    window: int


def attend_packed(query: Tensor, key: Tensor, value: Tensor, segments: Segments) -> tuple[Tensor, Tensor]:
    """Attention (T, H, D) of query (T, H, D) to key and value (T, H_kv, D), all contiguous, and the log-sum-exp (T, H)
    of the scaled scores, which the backward pass needs."""
    out, logsumexp = torch.empty_like(query), torch.empty(query.shape[:2], dtype=torch.float32)
    call("packed_attend", query, key, value, out, logsumexp, *_segment_arguments(query, key, segments))
    return out, logsumexp


def attend_packed_backward(
    inputs: Sequence[Tensor], out: Tensor, logsumexp: Tensor, grad: Tensor, segments: Segments
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of the `inputs` (query, key, value), given that of `out`."""
    query, key, value = inputs
    grads = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
    shape = _segment_arguments(query, key, segments)
    call("packed_backward", query, key, value, out, grad, logsumexp, *grads, *shape)
    return grads


def _segment_arguments(query: Tensor, key: Tensor, segments: Segments) -> tuple[Tensor | int | float, ...]:
    assert blocks_fit(query) and query.is_contiguous() and key.is_contiguous()
    (T, H, D), H_kv, rows = query.shape, key.shape[1], segments.rows
    return rows, len(rows), T, H, H_kv, D, float(segments.scale), segments.window
