"""All layers of a decoder in one call of the kernels, for new tokens of sequences in a KV cache."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from slimrl.models.native import ops


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """The shape that all layers share: the sizes of the hidden state, of the MLP's inner layer and of a head, the
    numbers of query and key heads, the norms' epsilon, and the scale of attention scores."""

    hidden: int
    inner: int
    heads: int
    key_heads: int
    head_dim: int
    eps: float
    scale: float


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """One layer's weights: products and norms. Only some architectures have norms of heads.

    `mix` is gate and up in halves. `window` is the width of sliding attention in positions; 0 means all.
    """

    before: Tensor
    after: Tensor
    query_norm: Tensor | None
    key_norm: Tensor | None
    qkv: ops.Packed
    out: ops.Packed
    mix: ops.Packed
    down: ops.Packed
    window: int

    @property
    def products(self) -> tuple[ops.Packed, ...]:
        return self.qkv, self.out, self.mix, self.down


def decode(
    hidden_TD: Tensor,
    rotary: tuple[Tensor, Tensor],
    spans: Tensor,
    caches: Sequence[tuple[Tensor, Tensor]],
    layers: Sequence[DecoderLayer],
    shape: DecoderShape,
) -> None:
    """Run the hidden states of T new tokens through all layers, in place, and store their keys and values.

    `rotary` are the cosines and sines (T, head_dim / 2) of their positions; `spans` (S, 4) and every layer's (keys,
    values) are as for `ops.store`. All tensors are bfloat16, and head_dim is a multiple of 64.
    """
    T = len(hidden_TD)
    assert ops.blocks_fit(hidden_TD.view(T, -1, shape.head_dim)[:, :1]) and hidden_TD.is_contiguous()
    key_width = shape.key_heads * shape.head_dim
    decoder = _Decoder(
        shape.hidden,
        shape.inner,
        shape.heads,
        shape.key_heads,
        shape.head_dim,
        caches[0][0].shape[1],
        shape.eps,
        shape.scale,
    )
    pointers = (_LayerStruct * len(layers))(
        *(_pointers(layer, *cache) for layer, cache in zip(layers, caches, strict=True))
    )
    # Per token: the normed hidden state, queries, keys and values, the attention output, and the MLP's inner layer.
    per_token = shape.hidden + 2 * shape.heads * shape.head_dim + 2 * key_width + shape.inner
    scratch = torch.empty(T * per_token, dtype=hidden_TD.dtype)
    ops.call("decode", pointers, len(layers), decoder, hidden_TD, T, *rotary, spans, len(spans), scratch)


class _Decoder(ctypes.Structure):
    # The same fields, in the same order, as `Decoder` in decoder.cpp; likewise `_LayerStruct` below.
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("hidden", "inner", "heads", "key_heads", "head_dim", "capacity")),
        *((name, ctypes.c_float) for name in ("eps", "scale")),
    )


class _LayerStruct(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("before", "after", "query_norm", "key_norm")),
        *((name, ops.Weights) for name in ("qkv", "out", "mix", "down")),
        *((name, ctypes.c_void_p) for name in ("keys", "values")),
        ("window", ctypes.c_int64),
    )


def _pointers(layer: DecoderLayer, keys: Tensor, values: Tensor) -> _LayerStruct:
    norms = layer.before, layer.after, layer.query_norm, layer.key_norm
    return _LayerStruct(
        *(None if norm is None else norm.data_ptr() for norm in norms),
        *(product.weights() for product in layer.products),
        keys.data_ptr(),
        values.data_ptr(),
        layer.window,
    )
