"""Sharding of a policy over processes, by PyTorch's `fully_shard` (FSDP2): each holds a part of every parameter.

Before a layer computes, its parameters are gathered, and afterwards freed again; gradients are summed and divided among
the processes. A process keeps the master and moments of its part alone (`trainer/optim.py`). All processes must call
the same forwards in the same order, so all are given equally many packs (`trainer/parallel.py`).
"""

from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from slimrl.models.allocator import return_freed_memory
from slimrl.models.lora import shard_apart
from slimrl.trainer.parallel import Ranks


def shard(module: nn.Module, ranks: Ranks) -> nn.Module:
    """Divide the parameters of a causal LM among the processes, a decoder layer at a time; what lies outside of the
    layers stays gathered from forward to backward. A process that is alone keeps the module as it is. Returns it."""
    if ranks.num == 1:
        return module
    causal: Any = module
    for parameter in module.parameters():
        if parameter.requires_grad:
            # Gradients are then added up in float32, over the chunks of the head and over micro-batches.
            parameter.grad_dtype = torch.float32
    mesh = init_device_mesh(next(module.parameters()).device.type, (ranks.num,))
    # The parameters are sharded in the dtype they compute in, and the optimizer keeps what float32 has beyond it.
    policy = MixedPrecisionPolicy(reduce_dtype=torch.float32, cast_forward_inputs=False)
    for part in (*shard_apart(module), *causal.get_decoder().layers, module):
        sharded: Any = fully_shard(part, mesh=mesh, mp_policy=policy)
        # Token weights are of the whole batch, so its gradient is the sum and not the mean.
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)
    return_freed_memory()
    return module


def reshard(module: nn.Module) -> None:
    """Free what a forward has left gathered for a backward that does not come. A module that is not sharded stays as it
    is."""
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.reshard()
