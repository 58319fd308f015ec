"""Runs all layers of a decoder in one call of the kernels, for new tokens of sequences in a KV cache."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from slimrl.models.native import ops


class DecoderShape(ctypes.Structure):
    """The shape that all layers share, as `Decoder` in decoder.cpp. `hidden`, `inner` and `head_dim` are the sizes of
    the hidden state, of the MLP's inner layer and of a head. `heads` and `key_heads` are the numbers of query and key
    heads. `capacity` is the size of a slot of the cache (set by `decode`), `eps` is the norms' epsilon, and `scale` is
    the factor of attention scores."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("hidden", "inner", "heads", "key_heads", "head_dim", "capacity")),
        *((name, ctypes.c_float) for name in ("eps", "scale")),
    )


class _LayerStruct(ctypes.Structure):
    # The same fields, in the same order, as `Layer` in decoder.cpp.
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("before", "after", "query_norm", "key_norm")),
        *((name, ops.Weights) for name in ("qkv", "out", "mix", "down")),
        *((name, ctypes.c_void_p) for name in ("keys", "values")),
        ("window", ctypes.c_int64),
    )


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """One layer's weights. `norms` are the norms before attention, before the MLP, of query heads and of key heads (the
    last two are None in some architectures). `products` are the joint query, key and value projection, the output
    projection, the halves gate and up, and down.

    `window` is the width of sliding attention in positions; 0 means all.
    """

    norms: tuple[Tensor, Tensor, Tensor | None, Tensor | None]
    products: tuple[ops.Packed, ops.Packed, ops.Packed, ops.Packed]
    window: int

    def pointers(self, keys: Tensor, values: Tensor) -> _LayerStruct:
        """Return the struct for the kernel, with pointers to the weights and to the layer's cached keys and values."""
        norms = (None if norm is None else norm.data_ptr() for norm in self.norms)
        weights = (product.weights() for product in self.products)
        return _LayerStruct(*norms, *weights, keys.data_ptr(), values.data_ptr(), self.window)


def decode(
    hidden_TD: Tensor,
    rotary: tuple[Tensor, Tensor],
    spans: Tensor,
    caches: Sequence[tuple[Tensor, Tensor]],
    layers: Sequence[DecoderLayer],
    shape: DecoderShape,
) -> None:
    """Run the hidden states of T new tokens through all layers, in place, and store their keys and values.

    `rotary` are the cosines and sines (T, head_dim / 2) of the tokens' positions. `spans` (S, 4) and each layer's
    (keys, values) in `caches` are as for `ops.store`. All tensors are bfloat16, and head_dim is a multiple of 64.
    """
    T = len(hidden_TD)
    assert ops.blocks_fit(hidden_TD.view(T, -1, shape.head_dim)[:, :1]) and hidden_TD.is_contiguous()
    shape.capacity = caches[0][0].shape[1]
    structs = (layer.pointers(*cache) for layer, cache in zip(layers, caches, strict=True))
    pointers = (_LayerStruct * len(layers))(*structs)
    # Per token: the normed hidden state, queries, keys and values, the attention output, and the MLP's inner layer.
    per_token = shape.hidden + 2 * (shape.heads + shape.key_heads) * shape.head_dim + shape.inner
    scratch = torch.empty(T * per_token, dtype=hidden_TD.dtype)
    ops.call("decode", pointers, len(layers), shape, hidden_TD, T, *rotary, spans, len(spans), scratch)
