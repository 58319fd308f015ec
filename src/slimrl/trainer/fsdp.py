"""Shards a policy and its optimizer's state over processes with PyTorch's `fully_shard` (FSDP2). Each process holds one
shard of every parameter.

The parameters of a layer are gathered before it computes and freed afterwards. Gradients are summed, and each process
keeps the sum for its shards. A process holds only the masters and moments of its shards (`trainer/optim.py`). All
processes must call the same forwards in the same order, so they get the same number of packs (`trainer/parallel.py`).

For a checkpoint, the leading process gathers the whole tensors in its main memory, about 12 bytes a parameter. Any
number of processes can resume from it.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from slimrl.models.allocator import return_freed_memory
from slimrl.models.lora import shard_apart
from slimrl.models.shards import whole
from slimrl.trainer.parallel import Ranks

States = Mapping[str, Mapping[str, Tensor]]  # parameter name -> master and moments by name


def shard(module: nn.Module, ranks: Ranks) -> nn.Module:
    """Divide the parameters of a causal LM among the processes, one decoder layer at a time, and return the module.
    Parameters outside the layers stay gathered from forward to backward. With a single process the module is
    unchanged."""
    if ranks.num == 1:
        return module
    causal: Any = module
    for parameter in module.parameters():
        if parameter.requires_grad:
            # Sum gradients in float32, because the chunks of the head and the micro-batches add many of them.
            parameter.grad_dtype = torch.float32
    mesh = init_device_mesh(next(module.parameters()).device.type, (ranks.num,))
    # Parameters are sharded in their compute dtype; the optimizer stores the additional bits of the float32 masters.
    policy = MixedPrecisionPolicy(reduce_dtype=torch.float32, cast_forward_inputs=False)
    for part in (*shard_apart(module), *causal.get_decoder().layers, module):
        sharded: Any = fully_shard(part, mesh=mesh, mp_policy=policy)
        # Token weights are computed for the whole batch, so the gradients of the processes are summed, not averaged.
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)
    return_freed_memory()
    return module


def reshard(module: nn.Module) -> None:
    """Free the gathered parameters after a forward pass without a backward pass. An unsharded module is unchanged."""
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.reshard()


def gather(states: States, keep: bool) -> dict[str, dict[str, Tensor]]:
    """Return the whole tensors in main memory if `keep`, else nothing. All processes must call this. Only one tensor at
    a time is gathered on the device."""
    found: dict[str, dict[str, Tensor]] = {}
    for name, state in states.items():
        for part, tensor in state.items():
            gathered = whole(tensor)
            if keep:
                found.setdefault(name, {})[part] = gathered.cpu()
    return found
