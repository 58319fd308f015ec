"""Which forward samples from a policy."""

import torch
from torch import nn

from slimrl.models.forward import Forward, ModuleForward
from slimrl.models.fused import FusedForward, can_fuse
from slimrl.models.tiled import TiledForward, can_tile


@torch.inference_mode()
def sampling_forward(module: nn.Module) -> Forward:
    """The fastest there is for the module on its device."""
    if can_tile(module):
        return TiledForward(module)
    return FusedForward(module) if can_fuse(module) else ModuleForward(module)
