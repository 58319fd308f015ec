"""Fused forward for sampling on a CPU: the module's computation in fewer, larger operations.

For a few dozen rows, a decoder layer of transformers makes some 40 small calls, and their overhead takes half of the
time. For the common decoder layer (norm, attention with rotary positions, norm, gated MLP), this forward needs ten
calls of `models/native` and oneDNN. Linear layers with the same input are joined into one product. The weights are
copied into the order in which the CPU reads them, so call `refresh` after every update of the policy.

Knows nothing of caches: the `AttentionPlan` decides the attention.
"""

import platform
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from slimrl.models.forward.attention import AttentionPlan, LayerInputs
from slimrl.models.forward.module import Forward
from slimrl.models.lora import Linear, base_of, is_linear, linear_of
from slimrl.models.native import ops

# The architectures with such layers, by `config.model_type`. SmolLM and SmolLM2 are `llama`.
FUSED = ("llama", "qwen2", "qwen3")
# Their linear layers: query, key, value and output of attention, then three of the MLP. Only the first three may have a
# bias.
LINEARS = tuple(f"self_attn.{x}_proj" for x in "qkvo") + tuple(f"mlp.{x}_proj" for x in ("gate", "up", "down"))


def can_fuse(module: nn.Module) -> bool:
    """Return True if the module has a known architecture and plain or LoRA linear layers, and kernels support its
    weights."""
    causal: Any = module
    if causal.config.model_type not in FUSED or causal.config.hidden_act != "silu":
        return False
    parts = [dict(layer.named_modules()) for layer in causal.get_decoder().layers]
    linears = [part.get(name) for part in parts for name in LINEARS]
    if type(causal.get_output_embeddings()) is not nn.Linear or not all(is_linear(linear) for linear in linears):
        return False
    without_bias = [base_of(part[name]) for part in parts for name in LINEARS[3:]]
    return all(linear.bias is None for linear in without_bias) and ops.available(next(module.parameters()))


class FusedForward(Forward):
    """A forward that computes the module's hidden states and logits, up to rounding, with joined products."""

    def __init__(self, module: nn.Module) -> None:
        causal: Any = module
        self._decoder = causal.get_decoder()
        self._head = _Product([linear_of(causal.get_output_embeddings())])
        self._layers = [_Layer(layer, causal.config) for layer in self._decoder.layers]
        self._products = [self._head, *(product for layer in self._layers for product in layer.products)]

    def last_hidden(self, token_ids_T: Tensor, positions_T: Tensor, plan: AttentionPlan) -> Tensor:
        hidden_TD: Tensor = self._decoder.embed_tokens(token_ids_T)
        rotary = rotary_factors(self._decoder, hidden_TD, positions_T)
        for layer in self._layers:
            hidden_TD = layer(hidden_TD, rotary, plan)
        return _apply_norm(hidden_TD, self._decoder.norm)

    def logits(self, hidden_ND: Tensor) -> Tensor:
        return self._head(hidden_ND)


class _Layer:
    """One decoder layer. A call computes the layer's output for the hidden states (T, D) of a row of tokens."""

    def __init__(self, layer: Any, config: Any) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self._index = int(attention.layer_idx)
        self._scale = float(attention.scaling)
        self._head_dim = int(attention.head_dim)
        self._num_query = attention.q_proj.out_features // self._head_dim
        self._num_key = attention.k_proj.out_features // self._head_dim
        self._window = window_of(config, self._index)
        self._before, self._after = layer.input_layernorm, layer.post_attention_layernorm
        self._head_norms = norms_of_heads(attention, config)
        self._qkv = _Product([linear_of(part) for part in (attention.q_proj, attention.k_proj, attention.v_proj)])
        self._out = _Product([linear_of(attention.o_proj)])
        self._gate, self._up, self._down = (
            _Product([linear_of(part)]) for part in (mlp.gate_proj, mlp.up_proj, mlp.down_proj)
        )
        self.products = (self._qkv, self._out, self._gate, self._up, self._down)

    def __call__(self, hidden_TD: Tensor, rotary: tuple[Tensor, Tensor], plan: AttentionPlan) -> Tensor:
        T = len(hidden_TD)
        heads = self._qkv(_apply_norm(hidden_TD, self._before)).view(T, -1, self._head_dim)
        # Views of the joint product; the norms and the rotation below write into it.
        query, key, value = heads.split((self._num_query, self._num_key, self._num_key), 1)
        # `strict=False`: most architectures have no head norms.
        for part, norm in zip((query, key), self._head_norms, strict=False):
            ops.norm(part, norm.weight, norm.variance_epsilon, out=part)
        rotated = heads[:, : self._num_query + self._num_key]
        ops.rotate(rotated, *rotary, out=rotated)
        # The residual additions are part of the products `out` and `down`.
        inputs = LayerInputs(self._index, head_rows(query), head_rows(key), head_rows(value), self._scale, self._window)
        hidden_TD = self._out(plan.attend(inputs).reshape(T, -1), plus=hidden_TD)
        normed_TD = _apply_norm(hidden_TD, self._after)
        return self._down(ops.gate_mix(self._gate(normed_TD), self._up(normed_TD)), plus=hidden_TD)


def rotary_factors(decoder: Any, hidden_TD: Tensor, positions_T: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cosines and sines (T, D / 2) of every position's rotary angles."""
    # transformers repeats the factors for the second half of a head; the kernels need one half.
    factors = decoder.rotary_emb(hidden_TD[None], positions_T[None])
    cos, sin = (factor[0, :, : factor.shape[-1] // 2].contiguous() for factor in factors)
    return cos, sin


def window_of(config: Any, layer: int) -> int:
    """Return the width of the layer's sliding attention in positions; 0 means full attention."""
    sliding = config.model_type != "llama" and config.layer_types[layer] == "sliding_attention"
    return int(config.sliding_window) if sliding else 0


def norms_of_heads(attention: Any, config: Any) -> tuple[Any, ...]:
    """Return the norms of query and key heads; empty if the architecture has none."""
    return (attention.q_norm, attention.k_norm) if config.model_type == "qwen3" else ()


def head_rows(heads: Tensor) -> Tensor:
    """Return the heads (T, H, D) as (1, H, T, D), without a copy."""
    return heads.transpose(0, 1)[None]


def _apply_norm(hidden: Tensor, norm: Any) -> Tensor:
    return ops.norm(hidden, norm.weight, norm.variance_epsilon)


class _Product:
    """Linear layers with the same input, computed as one product. If the tensor `plus` is given, a call adds it to the
    product.

    If possible, oneDNN computes the product, with weights that were reordered in advance. PyTorch's linear layer would
    reorder the weights on every call.
    """

    def __init__(self, linears: Sequence[Linear]) -> None:
        self._linears = linears
        self._onednn = _has_onednn(linears[0].weight.dtype)
        self.refresh()

    def refresh(self) -> None:
        weights = [linear.weight.detach() for linear in self._linears]
        weight = torch.cat(weights) if len(weights) > 1 else weights[0]
        self._weight: Tensor | None = torch.ops.mkldnn._reorder_linear_weight(weight) if self._onednn else weight
        biases = [linear.bias.detach() for linear in self._linears if linear.bias is not None]
        self._bias = torch.cat(biases) if biases else None

    def offload(self) -> None:
        self._weight = None

    def __call__(self, hidden: Tensor, plus: Tensor | None = None) -> Tensor:
        if self._weight is None:
            self.refresh()
        if not self._onednn:
            product = F.linear(hidden, self._weight, self._bias)  # type: ignore[arg-type]
            return product if plus is None else product.add_(plus)
        # Name the overloads: resolving them costs 30 us a call.
        pointwise = torch.ops.mkldnn._linear_pointwise
        result: Tensor
        if plus is None:
            result = pointwise.default(hidden, self._weight, self._bias, "none", [], "")
        else:
            result = pointwise.binary(hidden, plus, self._weight, self._bias, "add")
        return result


def _has_onednn(dtype: torch.dtype) -> bool:
    if platform.machine() not in ("x86_64", "AMD64") or not torch.backends.mkldnn.is_available():
        return False
    return dtype == torch.float32 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
