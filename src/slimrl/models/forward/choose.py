"""Chooses the forward that samples from a policy."""

from typing import Literal

import torch
from torch import nn

from slimrl.errors import UserError
from slimrl.models.forward.fused import FUSED, FusedForward, can_fuse
from slimrl.models.forward.module import Forward, ModuleForward
from slimrl.models.forward.tiled import TiledForward, can_tile

Quantization = Literal["none", "int8"]  # of the weights that the engine samples with; training is never quantized


@torch.inference_mode()
def sampling_forward(module: nn.Module, quantization: Quantization = "none") -> Forward:
    """The fastest forward for the module on its device. Raises UserError if it cannot be quantized as asked."""
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
