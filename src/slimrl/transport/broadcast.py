"""Sends weights by collective broadcast, without files or pickle. Rank 0 is the trainer, the other ranks are samplers.

The process group is separate from any group of the trainer itself. It uses gloo between CPUs and NCCL between GPUs
(NCCL is untested). The group's members connect to a port on which the trainer listens. The request `/update_weights`
lists the tensors in the order of the broadcast. `slimrl_serve/transfer.py` and the plug-in for vLLM receive it.
"""

import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from slimrl.errors import UserError

dist: Any = torch.distributed  # parts used here are missing in its published types

BLOCKING = "TORCH_NCCL_BLOCKING_WAIT"
GROUP_S = 120.0  # seconds that a sampler waits for the group's other members
Kinds = Mapping[str, tuple[tuple[int, ...], torch.dtype]]


@dataclass(frozen=True, slots=True)
class Meeting:
    """The parameters of a process group: the trainer's address, the rank of this process, and the time limit of each
    operation."""

    address: str
    port: int
    rank: int
    world_size: int
    device: torch.device
    timeout_s: float


class WeightGroup:
    """A process group of one trainer and its samplers. The constructor waits for all members, and raises UserError if a
    member is missing after `timeout_s`."""

    def __init__(self, meeting: Meeting, listener: socket.socket | None = None) -> None:
        self._meeting = meeting
        timeout = timedelta(seconds=meeting.timeout_s)
        try:
            # Pass a listening socket: PyTorch's own would listen on all addresses of the machine.
            store = dist.TCPStore(
                meeting.address,
                meeting.port,
                meeting.world_size,
                is_master=listener is not None,
                timeout=timeout,
                wait_for_workers=False,
                master_listen_fd=listener.detach() if listener else None,
            )
            self._group: Any = _group_of(meeting, store, timeout)
            # NCCL connects the members only at their first broadcast.
            self._broadcast(torch.zeros(1, dtype=torch.uint8, device=meeting.device))
        except (RuntimeError, ValueError) as error:
            raise self._failure("cannot be formed", error) from error

    def send(self, tensors: Iterable[Tensor]) -> None:
        """Broadcast tensors to all samplers. Raises UserError if a sampler is unreachable."""
        for tensor in tensors:
            self._broadcast(tensor.detach().to(self._meeting.device).contiguous())

    def receive(self, kinds: Kinds) -> Iterator[tuple[str, Tensor]]:
        """Yield the name and the value of each broadcast tensor. Raises UserError if the trainer is unreachable."""
        for name, (shape, dtype) in kinds.items():
            tensor = torch.empty(shape, dtype=dtype, device=self._meeting.device)
            self._broadcast(tensor)
            yield name, tensor

    def close(self) -> None:
        """Leave the group; pending collectives of the other members fail."""
        if self._group is not None:
            self._group.abort()
            self._group = None  # gloo keeps its connections as long as the object lives

    def __enter__(self) -> "WeightGroup":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _broadcast(self, tensor: Tensor) -> None:
        options = dist.BroadcastOptions()
        options.rootRank = 0
        try:
            # Send bytes: not every backend supports every dtype.
            self._group.broadcast([tensor.reshape(-1).view(torch.uint8)], options).wait()
        except RuntimeError as error:
            raise self._failure("broke", error) from error

    def _failure(self, what: str, error: Exception) -> UserError:
        here = self._meeting
        return UserError(
            f"the group of {here.world_size} that weights are broadcast in, at {here.address}:{here.port}, {what} for "
            f"rank {here.rank} (0 is the trainer, the others are samplers), within {here.timeout_s:g} s: "
            f"{str(error).splitlines()[0][:300]}"
        )


def listen(address: str) -> socket.socket:
    """Return a socket that listens on a free port of the address, for the trainer's end of a group."""
    return socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET)


def describe_kinds(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the names, dtypes and shapes of the tensors, as in the field `update_info` of `/update_weights`."""
    return {
        "names": list(tensors),
        "dtype_names": [str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values()],
        "shapes": [list(tensor.shape) for tensor in tensors.values()],
    }


def _group_of(meeting: Meeting, store: Any, timeout: timedelta) -> Any:
    if meeting.device.type == "cuda":
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timeout
        # NCCL reads this when the group is created: `wait` then waits for the transfer, and raises if it fails.
        before = os.environ.get(BLOCKING)
        os.environ[BLOCKING] = "1"
        try:
            return dist.ProcessGroupNCCL(store, meeting.rank, meeting.world_size, options)
        finally:
            os.environ.pop(BLOCKING)
            if before is not None:
                os.environ[BLOCKING] = before
    gloo = dist.ProcessGroupGloo
    options = gloo._Options()
    options._timeout = timeout
    options._devices = [gloo.create_device(hostname=_own_address(meeting.address))]
    return gloo(store, meeting.rank, meeting.world_size, options)


def _own_address(other: str) -> str:
    """Return this machine's address on the route to `other`; the loopback address if `other` is a loopback address."""
    family, _, _, _, target = socket.getaddrinfo(other, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(target)  # sends nothing
        return str(probe.getsockname()[0])
