"""The policy's forward for sampling on a CPU: the same numbers from fewer, larger operations.

Decoding a few dozen rows, a transformers layer makes some 40 small calls, and half of a step's time is not arithmetic.
For the common decoder layer (norm, attention with rotary positions, norm, gated MLP) this makes the same computation in
ten, of `models/native` and oneDNN. Linear layers that read the same input are one product, and their weights lie in the
order in which the processor reads them. Those are copies: after an update of the policy, `refresh`.

Knows nothing of caches: what attends to what is the `AttentionPlan`'s business, as everywhere.
"""

import platform
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from slimrl.models.forward.attention import AttentionPlan, LayerInputs
from slimrl.models.lora import Linear, base_of, is_linear, linear_of
from slimrl.models.native import ops

# The architectures whose layers are of that kind, by `config.model_type`. SmolLM and SmolLM2 are `llama`.
FUSED = ("llama", "qwen2", "qwen3")
# Their layers' products: three into attention, one out of it, three of the MLP. Only the first three may have a bias.
LINEARS = tuple(f"self_attn.{x}_proj" for x in "qkvo") + tuple(f"mlp.{x}_proj" for x in ("gate", "up", "down"))


def can_fuse(module: nn.Module) -> bool:
    """Whether the module is of a known architecture, with plain linear layers (not quantised; adapted, if so, by
    `models/lora.py`), on a CPU for which there are kernels."""
    causal: Any = module
    if causal.config.model_type not in FUSED or causal.config.hidden_act != "silu":
        return False
    parts = [dict(layer.named_modules()) for layer in causal.get_decoder().layers]
    linears = [part.get(name) for part in parts for name in LINEARS]
    if type(causal.get_output_embeddings()) is not nn.Linear or not all(is_linear(linear) for linear in linears):
        return False
    without_bias = [base_of(part[name]) for part in parts for name in LINEARS[3:]]
    return all(linear.bias is None for linear in without_bias) and ops.available(next(module.parameters()))


class Copy(Protocol):
    """What a product keeps of the module's weights."""

    def refresh(self) -> None: ...

    def offload(self) -> None: ...


class CopiedWeights:
    """Half of a `Forward`: what all products keep is taken over, and let go of, together."""

    _products: Sequence[Copy]

    @torch.inference_mode()
    def refresh(self) -> None:
        """Take over the module's present weights."""
        for product in self._products:
            product.refresh()

    def offload(self) -> None:
        """Let go of the copies of the weights until the next call."""
        for product in self._products:
            product.offload()


class FusedForward(CopiedWeights):
    """`last_hidden` and `logits` are those of the module, to rounding."""

    def __init__(self, module: nn.Module) -> None:
        causal: Any = module
        self._decoder = causal.get_decoder()
        self._head = _Product([linear_of(causal.get_output_embeddings())])
        self._layers = [_Layer(layer, causal.config) for layer in self._decoder.layers]
        self._products = [self._head, *(product for layer in self._layers for product in layer.products)]

    def last_hidden(self, token_ids_T: Tensor, positions_T: Tensor, plan: AttentionPlan) -> Tensor:
        """Final hidden states (T, D)."""
        hidden_TD: Tensor = self._decoder.embed_tokens(token_ids_T)
        rotary = rotary_factors(self._decoder, hidden_TD, positions_T)
        for layer in self._layers:
            hidden_TD = layer(hidden_TD, rotary, plan)
        return _apply_norm(hidden_TD, self._decoder.norm)

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
        query, key, value = heads.split((self._num_query, self._num_key, self._num_key), 1)
        for part, norm in zip((query, key), self._head_norms, strict=False):
            ops.norm(part, norm.weight, norm.variance_epsilon, out=part)
        rotated = heads[:, : self._num_query + self._num_key]
        ops.rotate(rotated, *rotary, out=rotated)
        inputs = LayerInputs(self._index, head_rows(query), head_rows(key), head_rows(value), self._scale, self._window)
        hidden_TD = self._out(plan.attend(inputs).reshape(T, -1), plus=hidden_TD)
        normed_TD = _apply_norm(hidden_TD, self._after)
        return self._down(ops.gate_mix(self._gate(normed_TD), self._up(normed_TD)), plus=hidden_TD)


def rotary_factors(decoder: Any, hidden_TD: Tensor, positions_T: Tensor) -> tuple[Tensor, Tensor]:
    """(cos, sin) of every position's angles, each (T, D / 2)."""
    factors = decoder.rotary_emb(hidden_TD[None], positions_T[None])
    cos, sin = (factor[0, :, : factor.shape[-1] // 2].contiguous() for factor in factors)
    return cos, sin


def window_of(config: Any, layer: int) -> int:
    """How many positions the layer's attention looks back; 0 means all."""
    sliding = config.model_type != "llama" and config.layer_types[layer] == "sliding_attention"
    return int(config.sliding_window) if sliding else 0


def norms_of_heads(attention: Any, config: Any) -> tuple[Any, ...]:
    """The norms of query and key heads, if there are any."""
    return (attention.q_norm, attention.k_norm) if config.model_type == "qwen3" else ()


def head_rows(heads: Tensor) -> Tensor:
    """(T, H, D) as (1, H, T, D)."""
    return heads.transpose(0, 1)[None]


def _apply_norm(hidden: Tensor, norm: Any) -> Tensor:
    return ops.norm(hidden, norm.weight, norm.variance_epsilon)


class _Product:
    """Linear layers with the same input as one product, plus a tensor of the result's shape if one is given. As PyTorch
    computes it, or oneDNN with the weights in an order of its own, into which PyTorch otherwise brings them anew on
    every call."""

    def __init__(self, linears: Sequence[Linear]) -> None:
        self._linears = linears
        self._onednn = _has_onednn(linears[0].weight.dtype)
        self.refresh()

    def refresh(self) -> None:
        weight = _joint_weight(self._linears)
        self._weight: Tensor | None = torch.ops.mkldnn._reorder_linear_weight(weight) if self._onednn else weight
        self._bias = _joint_bias(self._linears)

    def offload(self) -> None:
        self._weight = None

    def __call__(self, hidden: Tensor, plus: Tensor | None = None) -> Tensor:
        if self._weight is None:
            self.refresh()
        if not self._onednn:
            product = F.linear(hidden, self._weight, self._bias)  # type: ignore[arg-type]
            return product if plus is None else product.add_(plus)
        # The overloads by name, because looking for the right one costs 30 us a call.
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


def _joint_weight(linears: Sequence[Linear]) -> Tensor:
    weights = [linear.weight.detach() for linear in linears]
    return torch.cat(weights) if len(weights) > 1 else weights[0]


def _joint_bias(linears: Sequence[Linear]) -> Tensor | None:
    biases = [linear.bias.detach() for linear in linears if linear.bias is not None]
    return torch.cat(biases) if biases else None
