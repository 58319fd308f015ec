"""The policy's forward for training on a CPU, with gradients worked out by hand.

Autograd keeps what every operation was given, and a decoder layer of transformers is some 40 of them. Here a layer is
four pieces (normalise and project, rotate, attend, mix) that keep only what the backward pass cannot cheaply make
again: a third of the memory, and half as many passes over it. The numbers are those of the module and of
`models/forward/fused.py`; tests, a trial when a model is loaded and the guard of RL's steps hold all three together.

Where a matrix is adapted (`models/lora.py`), the merged one is computed with, and of what stands for it only the small
pair gets a gradient: that of the large matrix is never formed. Knows nothing of packing: what attends to what is the
`AttentionPlan`'s business, as everywhere.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from slimrl.models.forward.attention import AttentionPlan, LayerInputs
from slimrl.models.forward.fused import can_fuse, head_rows, rotary_factors, window_of
from slimrl.models.forward.module import last_hidden
from slimrl.models.lora import Linear, linear_of
from slimrl.models.native import ops

Scales = tuple[float, ...]  # of each linear layer's pair


def training_hidden(module: nn.Module, token_ids_T: Tensor, positions_T: Tensor, plan: AttentionPlan) -> Tensor:
    """Final hidden states (T, D) of one flat row of tokens, with a gradient, by the cheapest way there is."""
    causal: Any = module
    if not can_fuse(module):
        return last_hidden(module, token_ids_T, positions_T, plan)
    decoder = causal.get_decoder()
    hidden_TD: Tensor = decoder.embed_tokens(token_ids_T)
    rotary = rotary_factors(decoder, hidden_TD, positions_T)
    for layer in decoder.layers:
        hidden_TD = _attend(layer, causal.config, hidden_TD, rotary, plan)
        norm, mlp = layer.post_attention_layernorm, layer.mlp
        linears = [linear_of(part) for part in (mlp.gate_proj, mlp.up_proj, mlp.down_proj)]
        hidden_TD = _GatedMLP.apply(hidden_TD, norm.weight, norm.variance_epsilon, _scales(linears), *_parts(linears))
    return _apply_norm(hidden_TD, decoder.norm)


def _attend(layer: Any, config: Any, hidden_TD: Tensor, rotary: tuple[Tensor, Tensor], plan: AttentionPlan) -> Tensor:
    """The hidden states plus what attention adds to them."""
    attention = layer.self_attn
    query, key, value = _project_qkv(hidden_TD, layer.input_layernorm, attention)
    if config.model_type == "qwen3":
        query, key = _apply_norm(query, attention.q_norm), _apply_norm(key, attention.k_norm)
    rotated = _Rotate.apply(query, *rotary), _Rotate.apply(key, *rotary)

    # The copy of the values lets go of the joint projection that they are a part of.
    query, key, value = (head_rows(heads) for heads in (*rotated, value.contiguous()))
    index = int(attention.layer_idx)
    inputs = LayerInputs(index, query, key, value, float(attention.scaling), window_of(config, index))
    attended_TD = plan.attend(inputs).flatten(2)[0]
    out = linear_of(attention.o_proj)
    added: Tensor = _AddLinear.apply(hidden_TD, attended_TD, _scales([out]), *_parts([out]))
    return added


def _project_qkv(hidden_TD: Tensor, norm: Any, attention: Any) -> Sequence[Tensor]:
    """Queries (T, H, D), keys and values (T, H_kv, D) of the normalised hidden states, from one product."""
    linears = [linear_of(part) for part in (attention.q_proj, attention.k_proj, attention.v_proj)]
    biases = [linear.bias for linear in linears if linear.bias is not None]
    joint = _NormLinear.apply(hidden_TD, norm.weight, norm.variance_epsilon, _scales(linears), *_parts(linears))
    if biases:
        joint = joint + torch.cat(biases)
    parts = joint.split([len(linear.weight) for linear in linears], -1)
    return [part.unflatten(-1, (-1, int(attention.head_dim))) for part in parts]


def _apply_norm(x: Tensor, norm: Any) -> Tensor:
    normed: Tensor = _Norm.apply(x, norm.weight, norm.variance_epsilon)
    return normed


class _Norm(torch.autograd.Function):
    """y = w x / rms(x) over the last dimension."""

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
    """All projections of one normalised input side by side: (T, sum of their widths)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float, scales: Scales, *parts: Tensor | None) -> Tensor:
        normed, of_rows = ops.norm_forward(x, weight, eps)
        ctx.save_for_backward(x, weight, of_rows, *parts)
        ctx.eps, ctx.scales = eps, scales
        return F.linear(normed, torch.cat([linear.weight for linear in _linears(parts, scales)]))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, of_rows, *parts = ctx.saved_tensors
        normed, linears = ops.norm(x, weight, ctx.eps), _linears(parts, ctx.scales)
        grads = grad.split([len(linear.weight) for linear in linears], -1)
        grad_parts = [_gradients(*each, normed) for each in zip(linears, grads, strict=True)]
        grad_normed = grad @ torch.cat([linear.weight for linear in linears])
        grad_x, grad_weight = ops.norm_backward(grad_normed, x, weight, of_rows)
        return grad_x, grad_weight, None, None, *(part for three in grad_parts for part in three)


class _AddLinear(torch.autograd.Function):
    """plus + W x."""

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
    """Rotary positions, see `ops.rotate`."""

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
    """x + down(silu(gate(n)) up(n)) with n = norm(x). Keeps x alone: what is three times as wide is computed again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float, scales: Scales, *parts: Tensor | None) -> Tensor:
        gate, up, down = _linears(parts, scales)
        normed, of_rows = ops.norm_forward(x, weight, eps)
        ctx.save_for_backward(x, weight, of_rows, *parts)
        ctx.eps, ctx.scales = eps, scales
        mixed = ops.gate_mix(F.linear(normed, gate.weight), F.linear(normed, up.weight))
        return torch.addmm(x, mixed, down.weight.t())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, of_rows, *parts = ctx.saved_tensors
        gate, up, down = _linears(parts, ctx.scales)
        grad = grad.contiguous()
        normed = ops.norm(x, weight, ctx.eps)
        inputs = F.linear(normed, gate.weight), F.linear(normed, up.weight)
        grad_gate, grad_up, mixed = ops.gate_backward(grad @ down.weight, *inputs)
        grad_down = _gradients(down, grad, mixed)
        grad_normed = torch.addmm(grad_gate @ gate.weight, grad_up, up.weight)
        grad_x, grad_weight = ops.norm_backward(grad_normed, x, weight, of_rows, plus=grad)
        grad_mix = *_gradients(gate, grad_gate, normed), *_gradients(up, grad_up, normed)
        return grad_x, grad_weight, None, None, *grad_mix, *grad_down


def _parts(linears: Sequence[Linear]) -> tuple[Tensor | None, ...]:
    """The layers' tensors one by one, as autograd takes the arguments of a function; `_linears` is the inverse."""
    return tuple(part for linear in linears for part in (linear.weight, linear.A, linear.B))


def _scales(linears: Sequence[Linear]) -> Scales:
    return tuple(linear.scale for linear in linears)


def _linears(parts: Sequence[Any], scales: Scales) -> list[Linear]:
    """Without biases."""
    threes = zip(parts[::3], parts[1::3], parts[2::3], scales, strict=True)
    return [Linear(weight, None, A, B, scale) for weight, A, B, scale in threes]


def _gradients(linear: Linear, grad: Tensor, x: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Those of the weight, of A and of B, as far as they are trained; `grad` is that of the output."""
    if linear.A is None or linear.B is None:
        return (grad.t() @ x if linear.weight.requires_grad else None), None, None
    # The products in the dtype of `x`, which is what the processor is fast at; r numbers a token are all that it costs.
    A, B = linear.A.to(x.dtype), linear.B.to(x.dtype)
    grad_A = (grad @ B).t() @ x
    grad_B = grad.t() @ (x @ A.t())
    return None, grad_A.float().mul_(linear.scale), grad_B.float().mul_(linear.scale)
