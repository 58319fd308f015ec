"""Tiled forward for sampling on a CPU that can multiply bfloat16 matrices in tiles. One call computes all layers.

It supports the architectures of `fused.py`, in bfloat16, on a CPU with AMX or AVX512-BF16, if the shapes of the weights
fit tiles. The weights are copied into the order in which the CPU reads them, optionally quantized to int8, so call
`refresh` after every update of the policy. `sampling_forward` chooses between this forward and the others.
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from slimrl.errors import UserError
from slimrl.models.forward.attention import BlockPlan
from slimrl.models.forward.fused import (
    FUSED,
    LINEARS,
    CopiedWeights,
    FusedForward,
    can_fuse,
    norms_of_heads,
    rotary_factors,
    window_of,
)
from slimrl.models.forward.module import Forward, ModuleForward
from slimrl.models.lora import base_of, linear_of
from slimrl.models.native import ops
from slimrl.models.native.decoder import DecoderLayer, DecoderShape, decode

Quantization = Literal["none", "int8"]  # of the engine's weights for sampling; training is never quantized


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


class TiledForward(CopiedWeights):
    """Computes the module's hidden states and logits, up to rounding. If the weights are `quantized`, rounding is
    coarser.

    A token's results are bitwise independent of the other tokens in the call.
    """

    def __init__(self, module: nn.Module, quantized: bool = False) -> None:
        causal: Any = module
        self._decoder = causal.get_decoder()
        self._head = ops.Packed([causal.get_output_embeddings().weight.detach()], quantized=quantized)
        self._layers = [_layer(layer, causal.config, quantized) for layer in self._decoder.layers]
        self._shape = _shape(self._decoder.layers[0])
        self._products = (self._head, *(product for layer in self._layers for product in layer.products))

    def last_hidden(self, token_ids_T: Tensor, positions_T: Tensor, plan: BlockPlan) -> Tensor:
        """Return the last hidden states (T, D)."""
        hidden_TD: Tensor = self._decoder.embed_tokens(token_ids_T)
        # Allocate every layer's cache before the call, so that the kernel gets all pointers at once.
        width = self._shape.key_heads * self._shape.head_dim
        caches = [plan.blocks(layer, width, hidden_TD) for layer in range(len(self._layers))]
        rotary = rotary_factors(self._decoder, hidden_TD, positions_T)
        decode(hidden_TD, rotary, plan.spans, caches, self._layers, self._shape)
        return ops.norm(hidden_TD, self._decoder.norm.weight, self._decoder.norm.variance_epsilon)

    def logits(self, hidden_ND: Tensor) -> Tensor:
        """Return the logits (N, V)."""
        return self._head(hidden_ND)


def _layer(layer: Any, config: Any, quantized: bool) -> DecoderLayer:
    attention, mlp = layer.self_attn, layer.mlp
    qkv = [linear_of(part) for part in (attention.q_proj, attention.k_proj, attention.v_proj)]
    mix = [linear_of(part).weight.detach() for part in (mlp.gate_proj, mlp.up_proj)]
    biases = [linear.bias.detach() for linear in qkv if linear.bias is not None]
    query_norm, key_norm = [norm.weight for norm in norms_of_heads(attention, config)] or [None, None]
    norms = layer.input_layernorm.weight, layer.post_attention_layernorm.weight, query_norm, key_norm
    products = (
        ops.Packed([linear.weight.detach() for linear in qkv], biases=biases, quantized=quantized),
        ops.Packed([linear_of(attention.o_proj).weight.detach()], quantized=quantized),
        ops.Packed(mix, halves=True, quantized=quantized),
        ops.Packed([linear_of(mlp.down_proj).weight.detach()], quantized=quantized),
    )
    return DecoderLayer(norms, products, window_of(config, int(attention.layer_idx)))


def _shape(layer: Any) -> DecoderShape:
    attention, head_dim = layer.self_attn, int(layer.self_attn.head_dim)
    return DecoderShape(
        hidden=layer.mlp.gate_proj.in_features,
        inner=layer.mlp.gate_proj.out_features,
        heads=attention.q_proj.out_features // head_dim,
        key_heads=attention.k_proj.out_features // head_dim,
        head_dim=head_dim,
        eps=float(layer.input_layernorm.variance_epsilon),
        scale=float(attention.scaling),
    )


@torch.inference_mode()
def sampling_forward(module: nn.Module, quantization: Quantization = "none") -> Forward:
    """Return the fastest forward for the module on its device. Raises UserError if that forward does not support the
    `quantization`."""
    if can_tile(module):
        return TiledForward(module, quantized=quantization == "int8")
    if quantization != "none":
        weight = next(module.parameters())
        raise UserError(
            f"`quantization = {quantization}` needs a CPU with AMX or AVX512-BF16, a C++ compiler, "
            f"`model.dtype = bfloat16` and an architecture of {', '.join(FUSED)} with heads of a multiple of 64 "
            f"numbers. This is a {type(module).__name__} in {weight.dtype} on {weight.device}, or the CPU is another. "
            "Leave `quantization` at `none`."
        )
    return FusedForward(module) if can_fuse(module) else ModuleForward(module)
