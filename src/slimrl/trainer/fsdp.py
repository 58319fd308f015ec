"""Shards a policy and its optimizer's state over processes with PyTorch's `fully_shard` (FSDP2). Each process holds one
shard of every parameter.

The parameters of a layer are gathered before it computes and freed afterwards. Gradients are summed, and each process
keeps the sum for its shards. A process holds only the masters and moments of its shards (`trainer/optim.py`). All
processes must call the same forwards in the same order, so they get the same number of packs (`trainer/parallel.py`).

Each process writes its shards to the disk, and any number of processes can read them. The shards form a distributed
checkpoint of PyTorch (DCP) in safetensors files, so nothing is pickled. The metadata of a file has the names and
offsets of its tensors.
"""

import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from slimrl.models.allocator import return_freed_memory
from slimrl.models.lora import shard_apart
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


def save_shards(states: States, directory: Path) -> None:
    """Write this process's shard of each tensor to the directory. All processes must call this. If writing fails in one
    process, all processes raise the same error."""
    with _as_one_process():
        save(_flat(states), storage_writer=HuggingFaceStorageWriter(str(directory), save_distributed=True))


def load_shards(states: States, directory: Path) -> None:
    """Fill each tensor with the saved tensor, or a shard with its part of the saved tensor. All processes must call
    this. If loading fails in one process, all processes raise the same error: KeyError or ValueError if the files
    belong to another model."""
    wanted = _flat(states)
    if unknown := check_shards(directory) - wanted.keys():
        raise KeyError(f"the model has no {min(unknown)}")
    with _as_one_process():
        load(wanted, storage_reader=HuggingFaceStorageReader(str(directory)))


def check_shards(directory: Path) -> set[str]:
    """Return the names of the saved tensors. Raises ValueError if a shard is missing, SafetensorError if a file is
    incomplete."""
    names = HuggingFaceStorageReader(str(directory)).read_metadata().state_dict_metadata
    for name, tensor in names.items():
        assert isinstance(tensor, TensorStorageMetadata)
        if sum(math.prod(chunk.sizes) for chunk in tensor.chunks) != math.prod(tensor.size):
            raise ValueError(f"a part of {name} is missing in {directory.name}/")
    if not names:
        raise ValueError(f"there are no shards in {directory.name}/")
    return set(names)


def _flat(states: States) -> dict[str, Tensor]:
    return {f"{name}.{part}": tensor for name, state in states.items() for part, tensor in state.items()}


@contextmanager
def _as_one_process() -> Iterator[None]:
    """Context manager: convert a CheckpointException to the error of the first process that failed."""
    try:
        with warnings.catch_warnings():
            # DCP warns each time that it runs in a single process.
            warnings.filterwarnings("ignore", message="torch.distributed is .*unavailable", category=UserWarning)
            yield
    except CheckpointException as error:
        first, _ = next(iter(error.failures.values()))
        raise first from None
