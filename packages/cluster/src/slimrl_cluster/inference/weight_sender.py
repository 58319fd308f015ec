"""Sends a trainer's weights to samplers by broadcast, without files. `slimrl.transport.broadcast` implements the group.

The samplers are notified by HTTP, and receive the weights during that request. Every step has a time-out, and the error
names the sampler.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import asdict
from typing import Any, TypeVar

import torch
from torch import Tensor

from slimrl.errors import UserError
from slimrl.models.lora import AdapterForm
from slimrl.transport.broadcast import GROUP_S, Meeting, WeightGroup, describe_kinds, listen
from slimrl_cluster.inference.remote_client import RemoteClient

T = TypeVar("T")
CAUSE_S = 2.0  # seconds to wait for the sampler's refusal that has broken the group


class WeightSender:
    """The trainer's side. The samplers reach this machine at `address`, which is 127.0.0.1 if they run on it too. Call
    `check` of all `clients` first: it counts the processes of a sampler, and every process gets its own rank."""

    def __init__(
        self, clients: Sequence[RemoteClient], address: str, device: torch.device, timeout_s: float = GROUP_S
    ) -> None:
        self._clients = clients
        listener = listen(address)
        port, first_ranks = listener.getsockname()[1], [1]
        for client in clients:
            first_ranks.append(first_ranks[-1] + client.num_processes)
        world_size = first_ranks.pop()
        meeting = Meeting(address, port, 0, world_size, device, timeout_s)
        self._group = self._together(
            lambda place, client: client.join_group(address, port, first_ranks[place], world_size),
            lambda: WeightGroup(meeting, listener),
        )

    def send(self, tensors: Mapping[str, Tensor], version: int, adapter: AdapterForm | None = None) -> None:
        """Send `tensors` to all samplers, and return once the samplers have loaded them. With an `adapter`, `tensors`
        are the adapter's, under PEFT's names. Raises UserError if a sampler does not load them."""
        kinds = describe_kinds(tensors) | ({"adapter": asdict(adapter)} if adapter else {})
        for client in self._clients:  # a sampler that is not ready refuses here, before anything waits for it
            client.wait(client.start_update())
        self._together(
            lambda _, client: client.finish_update(kinds, version), lambda: self._group.send(tensors.values())
        )

    def close(self) -> None:
        """Leave the group."""
        self._group.close()

    def __enter__(self) -> "WeightSender":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _together(self, ask: Callable[[int, RemoteClient], Coroutine[Any, Any, None]], own: Callable[[], T]) -> T:
        """Run `own` here while `ask` runs for every client. If `own` fails because a sampler has refused, the sampler's
        error is raised."""
        asked = [client.start(ask(place, client)) for place, client in enumerate(self._clients)]
        try:
            result = own()
        except UserError:
            for future in wait(asked, CAUSE_S).done:
                future.result()
            raise
        for future in asked:
            future.result()
        return result
