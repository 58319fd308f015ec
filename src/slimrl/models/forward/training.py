"""Fused forward for training on a CPU, with hand-written backward passes.

Autograd saves the inputs of every operation, and a decoder layer of transformers has some 40 operations. Here a layer
is four autograd functions (norm and projections, rotary positions, attention, gated MLP). They save only the tensors
that are expensive to recompute. Compared with transformers, this needs a third of the memory, and reads and writes it
half as often. The module and `models/forward/fused.py` compute the same results. Tests, the check of a loaded model and
the guard of RL steps compare these forwards.

A layer with a LoRA adapter (`models/lora.py`) computes with the merged matrix; only the small pair gets a gradient, and
the gradient of the large matrix is never formed. Knows nothing of packing: the `AttentionPlan` decides the attention.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from slimrl.models.forward.attention import AttentionPlan, LayerInputs
from slimrl.models.forward.fused import can_fuse, head_rows, rotary_factors, window_of
from slimrl.models.forward.module import call_as_forward, last_hidden
from slimrl.models.lora import Linear, linear_of
from slimrl.models.native import ops

Scales = tuple[float, ...]  # LoRA's scale of each linear layer


def training_hidden(
    module: nn.Module, token_ids_T: Tensor, positions_T: Tensor, plan: AttentionPlan, recompute: bool = False
) -> Tensor:
    """Return the last hidden states (T, D) of one row of tokens, with a gradient. Use the fastest forward that supports
    the module. With `recompute`, a layer saves only its input, and its backward pass computes the layer again."""
    causal: Any = module
    decoder = causal.get_decoder()
    if not can_fuse(module):
        with _save_inputs_only(decoder.layers if recompute else ()):
            return last_hidden(module, token_ids_T, positions_T, plan)
    hidden_TD: Tensor = decoder.embed_tokens(token_ids_T)
    rotary = rotary_factors(decoder, hidden_TD, positions_T)
    function = partial(_checkpoint, layer_output) if recompute else layer_output
    for layer in decoder.layers:
        hidden_TD = call_as_forward(layer, function, causal.config, hidden_TD, rotary, plan)
    return apply_norm(hidden_TD, decoder.norm)


# A layer draws no random numbers, so its second forward needs no saved state of a generator.
_checkpoint = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)


@contextmanager
def _save_inputs_only(layers: Iterable[Any]) -> Iterator[None]:
    """Context manager: make the forwards of `layers` save only their inputs for the backward pass."""
    # transformers' own switch has no effect outside of training mode, which slimrl never uses.
    for layer in layers:
        layer.forward = partial(_checkpoint, layer.forward)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def layer_output(
    layer: Any, config: Any, hidden_TD: Tensor, rotary: tuple[Tensor, Tensor], plan: AttentionPlan
) -> Tensor:
    """Return the hidden states (T, D) after one layer, with a gradient. `rotary` are the cosines and sines of the
    tokens' positions."""
    hidden_TD = _attend(layer, config, hidden_TD, rotary, plan)
    norm, mlp = layer.post_attention_layernorm, layer.mlp
    linears = [linear_of(part) for part in (mlp.gate_proj, mlp.up_proj, mlp.down_proj)]
    output: Tensor = _GatedMLP.apply(hidden_TD, norm.weight, norm.variance_epsilon, _scales(linears), *_parts(linears))
    return output


def _attend(layer: Any, config: Any, hidden_TD: Tensor, rotary: tuple[Tensor, Tensor], plan: AttentionPlan) -> Tensor:
    """Return the hidden states plus the attention output: the first half of a layer."""
    attention = layer.self_attn
    query, key, value = _project_qkv(hidden_TD, layer.input_layernorm, attention)
    if config.model_type == "qwen3":
        query, key = apply_norm(query, attention.q_norm), apply_norm(key, attention.k_norm)
    rotated = _Rotate.apply(query, *rotary), _Rotate.apply(key, *rotary)

    # Copy the values: a view would keep the joint projection in memory until the backward pass.
    query, key, value = (head_rows(heads) for heads in (*rotated, value.contiguous()))
    index = int(attention.layer_idx)
    inputs = LayerInputs(index, query, key, value, float(attention.scaling), window_of(config, index))
    attended_TD = plan.attend(inputs).flatten(2)[0]
    out = linear_of(attention.o_proj)
    added: Tensor = _AddLinear.apply(hidden_TD, attended_TD, _scales([out]), *_parts([out]))
    return added


def _project_qkv(hidden_TD: Tensor, norm: Any, attention: Any) -> Sequence[Tensor]:
    """Return the queries (T, H, D), keys and values (T, H_kv, D) of the normed hidden states, from one product."""
    linears = [linear_of(part) for part in (attention.q_proj, attention.k_proj, attention.v_proj)]
    # Biases are added outside of the autograd function: autograd knows their gradient.
    biases = [linear.bias for linear in linears if linear.bias is not None]
    joint = _NormLinear.apply(hidden_TD, norm.weight, norm.variance_epsilon, _scales(linears), *_parts(linears))
    if biases:
        joint = joint + torch.cat(biases)
    parts = joint.split([len(linear.weight) for linear in linears], -1)
    return [part.unflatten(-1, (-1, int(attention.head_dim))) for part in parts]


def apply_norm(x: Tensor, norm: Any) -> Tensor:
    """Return RMSNorm of `x`, with a gradient. The weight is from the module `norm`."""
    normed: Tensor = _Norm.apply(x, norm.weight, norm.variance_epsilon)
    return normed


class _Norm(torch.autograd.Function):
    """RMSNorm, y = w x / rms(x) over the last dimension. Saves 1 / rms(x) of each row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        x = x.contiguous()
        normed, scales = ops.norm_forward(x, weight, eps)
        ctx.save_for_backward(x, weight, scales)
        return normed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return *ops.norm_backward(grad.contiguous(), *ctx.saved_tensors), None


class _NormLinear(torch.autograd.Function):
    """Several linear layers with the same input norm(x). Their outputs are side by side: (T, sum of widths). Saves x,
    not norm(x)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float, scales: Scales, *parts: Tensor | None) -> Tensor:
        normed, inverse_rms = ops.norm_forward(x, weight, eps)
        ctx.save_for_backward(x, weight, inverse_rms, *parts)
        ctx.eps, ctx.scales = eps, scales
        return F.linear(normed, torch.cat([linear.weight for linear in _linears(parts, scales)]))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, inverse_rms, *parts = ctx.saved_tensors
        # Compute norm(x) again: one pass over x costs less than storing it for every layer.
        normed, linears = ops.norm(x, weight, ctx.eps), _linears(parts, ctx.scales)
        grads = grad.split([len(linear.weight) for linear in linears], -1)
        grad_parts = [_gradients(*each, normed) for each in zip(linears, grads, strict=True)]
        # y = [W1; W2; W3] n, so d n = [d1, d2, d3] [W1; W2; W3]: one product for all three.
        grad_normed = grad @ torch.cat([linear.weight for linear in linears])
        grad_x, grad_weight = ops.norm_backward(grad_normed, x, weight, inverse_rms)
        return grad_x, grad_weight, None, None, *(part for three in grad_parts for part in three)


class _AddLinear(torch.autograd.Function):
    """A linear layer added to the residual: `plus` + W x. The gradient of `plus` equals the result's gradient."""

    @staticmethod
    def forward(ctx: Any, plus: Tensor, x: Tensor, scales: Scales, *parts: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, *parts)
        ctx.scales = scales
        (linear,) = _linears(parts, scales)
        return torch.addmm(plus, x, linear.weight.t())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, *parts = ctx.saved_tensors
        (linear,) = _linears(parts, ctx.scales)
        return grad, grad @ linear.weight, None, *_gradients(linear, grad, x)


class _Rotate(torch.autograd.Function):
    """Rotary positions, see `ops.rotate`. A rotation's gradient is the opposite rotation, so x is not saved."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return ops.rotate(x, cos, sin)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return ops.rotate(grad.contiguous(), cos, sin, back=True), None, None


class _GatedMLP(torch.autograd.Function):
    """The gated MLP with norm and residual, x + down(silu(gate(n)) up(n)) with n = norm(x).

    Saves only x. The backward pass recomputes the inner activations, which are three times as wide as x.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float, scales: Scales, *parts: Tensor | None) -> Tensor:
        gate, up, down = _linears(parts, scales)
        normed, inverse_rms = ops.norm_forward(x, weight, eps)
        ctx.save_for_backward(x, weight, inverse_rms, *parts)
        ctx.eps, ctx.scales = eps, scales
        mixed = ops.gate_mix(F.linear(normed, gate.weight), F.linear(normed, up.weight))
        return torch.addmm(x, mixed, down.weight.t())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, inverse_rms, *parts = ctx.saved_tensors
        gate, up, down = _linears(parts, ctx.scales)
        grad = grad.contiguous()
        normed = ops.norm(x, weight, ctx.eps)
        # Recompute g = gate(n) and u = up(n); with m = silu(g) u and d m = d y W_down the kernel gives d g, d u and m.
        inputs = F.linear(normed, gate.weight), F.linear(normed, up.weight)
        grad_gate, grad_up, mixed = ops.gate_backward(grad @ down.weight, *inputs)
        grad_down = _gradients(down, grad, mixed)
        # n is the input of both gate and up, so its gradient is the sum of two gradients.
        grad_normed = torch.addmm(grad_gate @ gate.weight, grad_up, up.weight)
        # x also reaches the output through the residual, whose gradient is `grad` itself.
        grad_x, grad_weight = ops.norm_backward(grad_normed, x, weight, inverse_rms, plus=grad)
        grad_mix = *_gradients(gate, grad_gate, normed), *_gradients(up, grad_up, normed)
        return grad_x, grad_weight, None, None, *grad_mix, *grad_down


def _parts(linears: Sequence[Linear]) -> tuple[Tensor | None, ...]:
    """Return the tensors of linear layers as a flat tuple (weight, A, B, weight, ...). Autograd sees only tensors that
    are direct arguments.

    `_linears` is the inverse.
    """
    return tuple(part for linear in linears for part in (linear.weight, linear.A, linear.B))


def _scales(linears: Sequence[Linear]) -> Scales:
    return tuple(linear.scale for linear in linears)


def _linears(parts: Sequence[Any], scales: Scales) -> list[Linear]:
    """Return the linear layers with the tensors from `_parts` and these scales, without biases."""
    threes = zip(parts[::3], parts[1::3], parts[2::3], scales, strict=True)
    return [Linear(weight, None, A, B, scale) for weight, A, B, scale in threes]


def _gradients(linear: Linear, grad: Tensor, x: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of the weight, of A and of B; None for untrained tensors. `grad` is the output's
    gradient."""
    if linear.A is None or linear.B is None:
        return (grad.t() @ x if linear.weight.requires_grad else None), None, None
    # y = x W^T + scale (x A^T) B^T. The products are computed in the dtype of x, because this is fast. They are small:
    # r numbers per token. d A = scale (d y B)^T x and d B = scale d y^T (x A^T): the scale is applied last, in float32.
    A, B = linear.A.to(x.dtype), linear.B.to(x.dtype)
    grad_A = (grad @ B).t() @ x
    grad_B = grad.t() @ (x @ A.t())
    return None, grad_A.float().mul_(linear.scale), grad_B.float().mul_(linear.scale)
