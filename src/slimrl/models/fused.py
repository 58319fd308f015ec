"""The policy's forward for sampling on a CPU: the same numbers from fewer, larger operations.

Decoding a few dozen rows, a transformers layer makes some 40 small calls, and half of a step's time is not arithmetic.
For the common decoder layer (norm, attention with rotary positions, norm, gated MLP) this makes the same computation in
28, without the modules around them. Linear layers that read the same input are one product, and their weights lie in
the order that oneDNN computes in, into which it otherwise brings them anew on every call. Those are copies: after an
update of the policy, `refresh`.

Knows nothing of caches: what attends to what is the `AttentionPlan`'s business, as everywhere.
"""

import platform
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from slimrl.models.attention import AttentionPlan, LayerInputs
from slimrl.models.forward import Forward, ModuleForward

# The architectures whose layers are of that kind, by `config.model_type`. SmolLM and SmolLM2 are `llama`.
FUSED = ("llama", "qwen2", "qwen3")
# Their layers' products: three into attention, one out of it, three of the MLP.
LINEARS = tuple(f"self_attn.{x}_proj" for x in "qkvo") + tuple(f"mlp.{x}_proj" for x in ("gate", "up", "down"))


@torch.inference_mode()
def sampling_forward(module: nn.Module) -> Forward:
    """The fastest forward there is for the module."""
    return FusedForward(module) if can_fuse(module) else ModuleForward(module)


def can_fuse(module: nn.Module) -> bool:
    """Whether `FusedForward` does for the module: a known architecture, on a CPU whose products oneDNN has."""
    return is_known(module) and _has_products(next(module.parameters()).dtype)


def is_known(module: nn.Module) -> bool:
    """Whether the module is of a known architecture, on a CPU, its linear layers plain: not adapted, not quantised."""
    causal: Any = module
    if causal.config.model_type not in FUSED or causal.config.hidden_act != "silu":
        return False
    parts = [dict(layer.named_modules()) for layer in causal.get_decoder().layers]
    linears = [part.get(name) for part in parts for name in LINEARS] + [causal.get_output_embeddings()]
    return next(module.parameters()).device.type == "cpu" and all(type(linear) is nn.Linear for linear in linears)


def _has_products(dtype: torch.dtype) -> bool:
    if platform.machine() not in ("x86_64", "AMD64") or not torch.backends.mkldnn.is_available():
        return False
    return dtype == torch.float32 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


class FusedForward:
    """`hidden` and `logits` are those of the module, to rounding."""

    def __init__(self, module: nn.Module) -> None:
        causal: Any = module
        self._decoder = causal.get_decoder()
        self._head = _Product([causal.get_output_embeddings()])
        self._layers = [_Layer(layer, causal.config) for layer in self._decoder.layers]
        self._norm = _Norm(self._decoder.norm)

    @torch.inference_mode()
    def refresh(self) -> None:
        """Take over the module's present weights."""
        for product in (self._head, *(product for layer in self._layers for product in layer.products)):
            product.pack()

    def hidden(self, token_ids_T: Tensor, positions_T: Tensor, plan: AttentionPlan) -> Tensor:
        """Final hidden states (T, D)."""
        hidden_TD: Tensor = self._decoder.embed_tokens(token_ids_T)
        cos, signed_sin = rotary_factors(self._decoder, hidden_TD, positions_T)
        for layer in self._layers:
            hidden_TD = layer(hidden_TD, cos, signed_sin, plan)
        return self._norm(hidden_TD)

    def logits(self, hidden_ND: Tensor) -> Tensor:
        """Logits (N, V)."""
        return self._head(hidden_ND)


class _Layer:
    """One decoder layer on a flat row (T, D)."""

    def __init__(self, layer: Any, config: Any) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self._index = int(attention.layer_idx)
        self._scale = float(attention.scaling)
        self._head_dim = int(attention.head_dim)
        self._num_query = attention.q_proj.out_features // self._head_dim
        self._num_key = attention.k_proj.out_features // self._head_dim
        self._window = window_of(config, self._index)
        self._norms = _Norm(layer.input_layernorm), _Norm(layer.post_attention_layernorm)
        normed = config.model_type == "qwen3"
        self._query_norm = _Norm(attention.q_norm) if normed else None
        self._key_norm = _Norm(attention.k_norm) if normed else None
        self._qkv = _Product([attention.q_proj, attention.k_proj, attention.v_proj])
        self._out = _Product([attention.o_proj])
        self._gate_up = _Product([mlp.gate_proj, mlp.up_proj])
        self._down = _Product([mlp.down_proj])
        self.products = (self._qkv, self._out, self._gate_up, self._down)

    def __call__(self, hidden_TD: Tensor, cos: Tensor, signed_sin: Tensor, plan: AttentionPlan) -> Tensor:
        before, after = self._norms
        heads = self._qkv(before(hidden_TD)).view(len(hidden_TD), -1, self._head_dim)
        rotated, value = heads.split((self._num_query + self._num_key, self._num_key), 1)
        if self._query_norm is not None and self._key_norm is not None:
            query, key = rotated.split((self._num_query, self._num_key), 1)
            rotated = torch.cat((self._query_norm(query), self._key_norm(key)), 1)
        # (a, b) -> (a cos - b sin, b cos + a sin) for the halves a, b of every head
        rotated = torch.addcmul(rotated * cos, rotated.roll(self._head_dim // 2, -1), signed_sin)
        query, key = rotated.split((self._num_query, self._num_key), 1)
        inputs = LayerInputs(self._index, head_rows(query), head_rows(key), head_rows(value), self._scale, self._window)
        hidden_TD = self._out(plan.attend(inputs).reshape(len(hidden_TD), -1), plus=hidden_TD)
        gate, up = self._gate_up(after(hidden_TD)).chunk(2, -1)
        return self._down(F.silu(gate).mul_(up), plus=hidden_TD)


def rotary_factors(decoder: Any, hidden_TD: Tensor, positions_T: Tensor) -> tuple[Tensor, Tensor]:
    """(cos, signed sin), each (T, 1, D): x cos + roll(x, D / 2) signed_sin is the rotated head x."""
    cos, sin = decoder.rotary_emb(hidden_TD[None], positions_T[None])
    half = cos.shape[-1] // 2
    return cos[0, :, None], torch.cat((-sin[0, :, None, :half], sin[0, :, None, half:]), -1)


def window_of(config: Any, layer: int) -> int:
    """How many positions the layer's attention looks back; 0 means all."""
    sliding = config.model_type != "llama" and config.layer_types[layer] == "sliding_attention"
    return int(config.sliding_window) if sliding else 0


class _Norm:
    """Root mean square norm as transformers computes it: in float32, rounded, then scaled."""

    def __init__(self, norm: Any) -> None:
        self._weight: Tensor = norm.weight
        self._eps = torch.tensor(float(norm.variance_epsilon))

    def __call__(self, hidden: Tensor) -> Tensor:
        exact = hidden.to(torch.float32, copy=True)
        scale = torch.linalg.vector_norm(exact, dim=-1, keepdim=True)
        scale = torch.addcmul(self._eps, scale, scale, value=1 / exact.shape[-1]).rsqrt_()
        return exact.mul_(scale).to(hidden.dtype).mul_(self._weight)


class _Product:
    """Linear layers with the same input as one matrix product."""

    def __init__(self, linears: Sequence[nn.Linear]) -> None:
        self._linears = linears
        self.pack()

    def pack(self) -> None:
        weights = [linear.weight.detach() for linear in self._linears]
        biases = [linear.bias.detach() for linear in self._linears if linear.bias is not None]
        self._weight = torch.ops.mkldnn._reorder_linear_weight(torch.cat(weights) if len(weights) > 1 else weights[0])
        self._bias = torch.cat(biases) if biases else None

    def __call__(self, hidden: Tensor, plus: Tensor | None = None) -> Tensor:
        """The product, plus a tensor of its shape if one is given."""
        # The overloads by name, because looking for the right one costs 30 us a call.
        pointwise = torch.ops.mkldnn._linear_pointwise
        result: Tensor
        if plus is None:
            result = pointwise.default(hidden, self._weight, self._bias, "none", [], "")
        else:
            result = pointwise.binary(hidden, plus, self._weight, self._bias, "add")
        return result


def head_rows(heads: Tensor) -> Tensor:
    """(T, H, D) as (1, H, T, D)."""
    return heads.transpose(0, 1)[None]
