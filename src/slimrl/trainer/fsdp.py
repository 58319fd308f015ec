"""Sharding of a policy and of its optimizer's state over processes, by PyTorch's `fully_shard` (FSDP2): each holds a
part of every parameter.

Before a layer computes, its parameters are gathered, and afterwards freed again; gradients are summed and divided among
the processes. A process keeps the master and moments of its part alone (`trainer/optim.py`). All processes must call
the same forwards in the same order, so all are given equally many packs (`trainer/parallel.py`).

On disk each process writes its own shards, and any number of processes reads them. They are a distributed checkpoint of
PyTorch's (DCP) in safetensors files, so that nothing is pickled. The metadata of a file has the places of its tensors.
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

States = Mapping[str, Mapping[str, Tensor]]  # of each parameter: master and moments by name


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


def save_shards(states: States, directory: Path) -> None:
    """Write this process's part of each tensor to the directory. All processes must call this, and if it fails in one,
    all raise its error."""
    with _as_one_process():
        save(_flat(states), storage_writer=HuggingFaceStorageWriter(str(directory), save_distributed=True))


def load_shards(states: States, directory: Path) -> None:
    """Fill each tensor, which may be sharded, with its part of the saved one. All processes must call this, and if it
    fails in one, all raise its error: KeyError or ValueError if the shards are of another model."""
    wanted = _flat(states)
    if unknown := check_shards(directory) - wanted.keys():
        raise KeyError(f"the model has no {min(unknown)}")
    with _as_one_process():
        load(wanted, storage_reader=HuggingFaceStorageReader(str(directory)))


def check_shards(directory: Path) -> set[str]:
    """The names of the tensors, if all of each can be found. Raises ValueError if a part is missing, or SafetensorError
    for a file that is not whole."""
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
    """Raises the first process's error as it would be raised in a single process."""
    try:
        with warnings.catch_warnings():
            # DCP says whenever it runs in one process that it does.
            warnings.filterwarnings("ignore", message="torch.distributed is .*unavailable", category=UserWarning)
            yield
    except CheckpointException as error:
        first, _ = next(iter(error.failures.values()))
        raise first from None
