"""Tiled forward for sampling on a CPU that can multiply bfloat16 matrices in tiles. One call computes all layers.

It supports the architectures of `fused.py`, in bfloat16, on a CPU with AMX or AVX512-BF16, if the shapes of the weights
fit tiles. The weights are copied into the order in which the CPU reads them, so call `refresh` after every update of
the policy. `sampling_forward` chooses between this forward and the others.
"""

import ctypes
from typing import Any

import torch
from torch import Tensor, nn

from slimrl.models.forward.attention import BlockPlan
from slimrl.models.forward.fused import LINEARS, FusedForward, can_fuse, norms_of_heads, rotary_factors, window_of
from slimrl.models.forward.module import Forward, ModuleForward
from slimrl.models.lora import base_of, linear_of
from slimrl.models.native import ops


def can_tile(module: nn.Module) -> bool:
    """Return True if `can_fuse` accepts the module, and the kernels support the shapes of all its weights and heads."""
    if not can_fuse(module):
        return False
    causal: Any = module
    parts = [dict(layer.named_modules()) for layer in causal.get_decoder().layers]
    linears = [base_of(part[name]) for part in parts for name in LINEARS]
    if not all(ops.packable(linear.weight) for linear in (*linears, causal.get_output_embeddings())):
        return False
    attention = causal.get_decoder().layers[0].self_attn
    # View the weight as heads: only the dtype, the device and the head's size matter here.
    return ops.blocks_fit(base_of(attention.o_proj).weight.view(-1, int(attention.head_dim)))


class _Shape(ctypes.Structure):
    """The struct `Decoder` of decoder.cpp: the sizes that all layers share."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("hidden", "heads", "key_heads", "head_dim", "capacity")),
        *((name, ctypes.c_float) for name in ("eps", "scale")),
    )


class _LayerStruct(ctypes.Structure):
    """The struct `Layer` of decoder.cpp, with the same fields in the same order."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("before", "after", "query_norm", "key_norm")),
        *((name, ops.Weights) for name in ("qkv", "out", "mix", "down")),
        *((name, ctypes.c_void_p) for name in ("keys", "values")),
        ("window", ctypes.c_int64),
    )


class TiledForward(Forward):
    """A forward that computes the module's hidden states and logits, up to rounding.

    A token's results are bitwise independent of the other tokens in the call.
    """

    def __init__(self, module: nn.Module) -> None:
        causal: Any = module
        self._decoder = causal.get_decoder()
        self._head = ops.Packed([causal.get_output_embeddings().weight.detach()])
        self._layers = [_Layer(layer, causal.config) for layer in self._decoder.layers]
        self._products = (self._head, *(product for layer in self._layers for product in layer.products))
        first = self._decoder.layers[0]
        attention, head_dim = first.self_attn, int(first.self_attn.head_dim)
        self._shape = _Shape(
            hidden=first.mlp.gate_proj.in_features,
            heads=attention.q_proj.out_features // head_dim,
            key_heads=attention.k_proj.out_features // head_dim,
            head_dim=head_dim,
            eps=float(first.input_layernorm.variance_epsilon),
            scale=float(attention.scaling),
        )
        self._inner = int(first.mlp.gate_proj.out_features)

    def last_hidden(self, token_ids_T: Tensor, positions_T: Tensor, plan: BlockPlan) -> Tensor:
        hidden_TD: Tensor = self._decoder.embed_tokens(token_ids_T)
        T, shape, layers = len(hidden_TD), self._shape, self._layers
        assert ops.blocks_fit(hidden_TD.view(T, -1, shape.head_dim)[:, :1]) and hidden_TD.is_contiguous()
        # Allocate every layer's cache before the call, so that the kernel gets all pointers at once.
        caches = [plan.blocks(layer, shape.key_heads * shape.head_dim, hidden_TD) for layer in range(len(layers))]
        shape.capacity = caches[0][0].shape[1]
        structs = (_LayerStruct * len(layers))(*(layer.struct(*kv) for layer, kv in zip(layers, caches, strict=True)))
        # Per token: the normed hidden state, queries, keys and values, the attention output, and the MLP's inner layer.
        per_token = shape.hidden + 2 * (shape.heads + shape.key_heads) * shape.head_dim + self._inner
        scratch = torch.empty(T * per_token, dtype=hidden_TD.dtype)
        rotary = rotary_factors(self._decoder, hidden_TD, positions_T)
        # Run the hidden states through all layers, in place, and store the tokens' keys and values.
        ops.call("decode", structs, len(layers), shape, hidden_TD, T, *rotary, plan.spans, len(plan.spans), scratch)
        return ops.norm(hidden_TD, self._decoder.norm.weight, self._decoder.norm.variance_epsilon)

    def logits(self, hidden_ND: Tensor) -> Tensor:
        return self._head(hidden_ND)


class _Layer:
    """The weights of one decoder layer, for the kernel."""

    def __init__(self, layer: Any, config: Any) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        qkv = [linear_of(part) for part in (attention.q_proj, attention.k_proj, attention.v_proj)]
        out, gate, up, down = (
            linear_of(part).weight.detach() for part in (attention.o_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj)
        )
        biases = [linear.bias.detach() for linear in qkv if linear.bias is not None]
        head_norms = [norm.weight for norm in norms_of_heads(attention, config)] or [None, None]
        self._norms = (layer.input_layernorm.weight, layer.post_attention_layernorm.weight, *head_norms)
        self._window = window_of(config, int(attention.layer_idx))
        self.products = (
            ops.Packed([linear.weight.detach() for linear in qkv], biases=biases),
            ops.Packed([out]),
            ops.Packed([gate, up], halves=True),
            ops.Packed([down]),
        )

    def struct(self, keys: Tensor, values: Tensor) -> _LayerStruct:
        """Return the struct with pointers to the weights and to the layer's cached keys and values."""
        norms = (None if norm is None else norm.data_ptr() for norm in self._norms)
        weights = (product.weights() for product in self.products)
        return _LayerStruct(*norms, *weights, keys.data_ptr(), values.data_ptr(), self._window)


@torch.inference_mode()
def sampling_forward(module: nn.Module) -> Forward:
    """Return the fastest forward for the module on its device."""
    if can_tile(module):
        return TiledForward(module)
    return FusedForward(module) if can_fuse(module) else ModuleForward(module)
