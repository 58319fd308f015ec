"""The shards of an optimizer's state on disk: each process writes its own, and any number of processes reads them.

They are a distributed checkpoint of PyTorch's (DCP) in safetensors files, so that nothing is pickled. A tensor of a
shard has its place in the whole one beside it, in the file's metadata.
"""

import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

States = Mapping[str, Mapping[str, Tensor]]  # of each parameter: master and moments by name


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
