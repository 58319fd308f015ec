"""A trainer's weights reach several servers by broadcast, and one that does not take them is named."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from packages.cluster.tests.helpers import checksums, remote_client, serving
from slimrl.errors import UserError
from slimrl.io.loop_thread import PROCESS_LOOP
from slimrl.transport.broadcast import Meeting, WeightGroup
from slimrl.types import SamplingParams
from slimrl_cluster.inference.remote_client import RemoteClient
from slimrl_cluster.inference.server_link import SamplerAddress
from slimrl_cluster.launch.weights import WeightSender

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def samplers(tiny_dir: Path) -> Iterator[dict[str, RemoteClient]]:
    """Clients of two servers, by address."""
    with ExitStack() as whole:
        addresses = [whole.enter_context(serving(tiny_dir)) for _ in range(2)]
        yield {one: whole.enter_context(closing(remote_client(SamplerAddress(one, timeout_s=10)))) for one in addresses}


@pytest.mark.slow
def test_two_samplers_get_the_weights_of_a_broadcast_and_their_version(
    samplers: dict[str, RemoteClient], tiny_dir: Path
) -> None:
    weights, (first, second), clients = load_file(tiny_dir / "model.safetensors"), samplers, [*samplers.values()]
    with WeightSender(clients, "127.0.0.1", CPU, 10) as sender:
        before = checksums(first)
        for version, factor in ((1, 1.5), (2, 1.0)):
            sender.send({name: tensor * factor for name, tensor in weights.items()}, version)
            assert checksums(first) == checksums(second)
            assert (checksums(first) == before) == (factor == 1.0)
        completion = clients[1].wait(clients[1].sample([5, 6], SamplingParams(4)))
        assert set(completion.versions) == {2}


@pytest.mark.slow
def test_a_sampler_that_refuses_the_weights_is_named(samplers: dict[str, RemoteClient]) -> None:
    with (
        WeightSender([*samplers.values()][:1], "127.0.0.1", CPU, 1.0) as sender,
        pytest.raises(UserError, match=r"the sampler at .*has the tensor nobody, which the served model has not"),
    ):
        sender.send({"nobody": torch.zeros(3)}, 1)


class Refusing:
    """A client of a sampler that joins the group, and is then not ready for an update."""

    num_processes = 1
    start, wait = PROCESS_LOOP.start, PROCESS_LOOP.wait

    async def join_group(self, address: str, port: int, rank: int, world_size: int) -> None:
        meeting = Meeting(address, port, rank, world_size, CPU, 60.0)
        self.group = await asyncio.to_thread(WeightGroup, meeting)

    async def start_update(self) -> None:
        raise UserError("it is not ready")


def test_nothing_is_sent_to_a_sampler_that_is_not_ready() -> None:
    sampler: Any = Refusing()
    with WeightSender([sampler], "127.0.0.1", CPU, 60.0) as sender, pytest.raises(UserError, match="it is not ready"):
        sender.send({"w": torch.zeros(3)}, 1)
    sampler.group.close()
