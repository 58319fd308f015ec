"""The policy's forward for training on a CPU, with gradients worked out by hand.

Autograd keeps what every operation was given, and a decoder layer of transformers is some 40 of them. Here a layer is
four pieces (normalise and project, rotate, attend, mix) that keep only what the backward pass cannot cheaply make
again: a third of the memory, and half as many passes over it. The numbers are those of the module and of
`models/fused.py`; tests, a trial when a model is loaded and the guard of RL's steps hold all three together. Knows
nothing of packing: what attends to what is the `AttentionPlan`'s business, as everywhere.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from slimrl.models.attention import AttentionPlan, LayerInputs
from slimrl.models.forward import hidden_states
from slimrl.models.fused import can_fuse, head_rows, rotary_factors, window_of
from slimrl.models.native import ops


def training_hidden(module: nn.Module, token_ids_T: Tensor, positions_T: Tensor, plan: AttentionPlan) -> Tensor:
    """Final hidden states (T, D) of one flat row of tokens, with a gradient, by the cheapest way there is."""
    causal: Any = module
    if not can_fuse(module):
        return hidden_states(module, token_ids_T, positions_T, plan)
    decoder = causal.get_decoder()
    hidden_TD: Tensor = decoder.embed_tokens(token_ids_T)
    rotary = rotary_factors(decoder, hidden_TD, positions_T)
    for layer in decoder.layers:
        hidden_TD = _attended(layer, causal.config, hidden_TD, rotary, plan)
        norm, mlp = layer.post_attention_layernorm, layer.mlp
        weights = norm.weight, mlp.gate_proj.weight, mlp.up_proj.weight, mlp.down_proj.weight
        hidden_TD = _GatedMLP.apply(hidden_TD, norm.variance_epsilon, *weights)
    return _normed(hidden_TD, decoder.norm)


def _attended(layer: Any, config: Any, hidden_TD: Tensor, rotary: tuple[Tensor, Tensor], plan: AttentionPlan) -> Tensor:
    """The hidden states plus what attention adds to them."""
    attention = layer.self_attn
    query, key, value = _projected(hidden_TD, layer.input_layernorm, attention)
    if config.model_type == "qwen3":
        query, key = _normed(query, attention.q_norm), _normed(key, attention.k_norm)
    rotated = _Rotate.apply(query, *rotary), _Rotate.apply(key, *rotary)

    # The copy of the values lets go of the joint projection that they are a part of.
    query, key, value = (head_rows(heads) for heads in (*rotated, value.contiguous()))
    index = int(attention.layer_idx)
    inputs = LayerInputs(index, query, key, value, float(attention.scaling), window_of(config, index))
    attended_TD = plan.attend(inputs).flatten(2)[0]
    return torch.addmm(hidden_TD, attended_TD, attention.o_proj.weight.t())


def _projected(hidden_TD: Tensor, norm: Any, attention: Any) -> Sequence[Tensor]:
    """Queries (T, H, D), keys and values (T, H_kv, D) of the normalised hidden states, from one product."""
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    weights = [projection.weight for projection in projections]
    biases = [projection.bias for projection in projections if projection.bias is not None]
    joint = _NormLinear.apply(hidden_TD, norm.weight, norm.variance_epsilon, *weights)
    if biases:
        joint = joint + torch.cat(biases)
    parts = joint.split([len(weight) for weight in weights], -1)
    return [part.unflatten(-1, (-1, int(attention.head_dim))) for part in parts]


def _normed(x: Tensor, norm: Any) -> Tensor:
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
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float, *projections: Tensor) -> Tensor:
        normed, scales = ops.norm_forward(x, weight, eps)
        ctx.save_for_backward(x, weight, scales, *projections)
        ctx.eps = eps
        return F.linear(normed, torch.cat(projections))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, scales, *projections = ctx.saved_tensors
        normed = ops.norm(x, weight, ctx.eps)
        grad_projections = _outer(grad, normed).split([len(projection) for projection in projections])
        grad_x, grad_weight = ops.norm_backward(grad @ torch.cat(projections), x, weight, scales)
        return grad_x, grad_weight, None, *grad_projections


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
    def forward(ctx: Any, x: Tensor, eps: float, *weights: Tensor) -> Tensor:
        weight, gate, up, down = weights
        normed, scales = ops.norm_forward(x, weight, eps)
        ctx.save_for_backward(x, weight, scales, gate, up, down)
        ctx.eps = eps
        return torch.addmm(x, ops.gate_mix(F.linear(normed, gate), F.linear(normed, up)), down.t())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, scales, gate, up, down = ctx.saved_tensors
        grad = grad.contiguous()
        normed = ops.norm(x, weight, ctx.eps)
        grad_gate, grad_up, mixed = ops.gate_backward(grad @ down, F.linear(normed, gate), F.linear(normed, up))
        grad_down = _outer(grad, mixed)
        grad_normed = torch.addmm(grad_gate @ gate, grad_up, up)
        grad_x, grad_weight = ops.norm_backward(grad_normed, x, weight, scales, plus=grad)
        return grad_x, None, grad_weight, _outer(grad_gate, normed), _outer(grad_up, normed), grad_down


def _outer(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient of a linear layer's weight."""
    return grad.t() @ x
