"""slimrl's own server as a process, started by its command, clients of samplers, and parts of a run."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import httpx
import pytest

from benchmarks.harness.ray_nodes import Nodes
from slimrl.config.deployment import Part
from slimrl.io.http import is_healthy
from slimrl.io.run_dir import RunDir
from slimrl_cluster.inference.remote_client import RemoteClient
from slimrl_cluster.inference.replicas import Replicas
from slimrl_cluster.inference.server_link import SamplerAddress
from slimrl_cluster.services.programs import free_port
from slimrl_cluster.transport.roster import Roster

STOP_ID = 2


@contextmanager
def serving(model: Path, port: int = 0) -> Iterator[str]:
    """The address of a server with float32 weights."""
    port = port or free_port("127.0.0.1")
    settings = {
        "--port": port, "--context_len": 512, "--max_slots": 4, "--grace_s": 0, "--model.name": model,
        "--model.device": "cpu", "--model.dtype": "float32", "--model.num_threads": 1,
    }  # fmt: skip
    words = [str(word) for pair in settings.items() for word in pair]
    address = f"http://127.0.0.1:{port}"
    with subprocess.Popen([sys.executable, "-m", "slimrl", "inference", *words]) as process:
        try:
            wait_until(lambda: process.poll() is not None or is_healthy(address, 5.0), 300, pause_s=0.3)
            assert httpx.get(f"{address}/v1/models").is_success
            yield address
        finally:
            process.terminate()


@contextmanager
def ray_nodes(num: int) -> Iterator[Nodes]:
    """A cluster of so many nodes on this machine."""
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    try:
        cluster = Nodes(num)
    except SystemExit as error:  # Ray gives up on nodes that a very busy machine starts too slowly
        pytest.skip(str(error))
    with cluster:
        yield cluster


def remote_client(address: SamplerAddress, seq_len: int = 64) -> RemoteClient:
    return RemoteClient(address, frozenset([STOP_ID]), seq_len)


@contextmanager
def client_of(
    url: str, backend: Literal["slimrl", "vllm"] = "slimrl", timeout_s: float = 20.0, seq_len: int = 64
) -> Iterator[Replicas]:
    """The client of a run whose only sampler is the server at `url`."""
    address = SamplerAddress(url.removesuffix("/v1"), timeout_s=timeout_s, backend=backend)
    client = Replicas(lambda: {"one": address}, lambda one: remote_client(one, seq_len), print, 60.0)
    try:
        yield client
    finally:
        client.close()


def wait_until(is_so: Callable[[], object], seconds: float = 20.0, pause_s: float = 0.005) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(pause_s)


def roster_of(
    directory: Path, own: Part = "orchestrator", timeout_s: float = 20.0, note: Callable[[str], None] = print
) -> Roster:
    """The parts of the run in a directory, as one of them sees them."""
    return Roster(RunDir(directory), own, timeout_s, note)


@contextmanager
def joined(directory: Path, part: Part, **facts: str) -> Iterator[None]:
    """Take part in a run, and announce these facts."""
    with roster_of(directory, part).reserve() as place:
        place.announce(facts)
        yield
