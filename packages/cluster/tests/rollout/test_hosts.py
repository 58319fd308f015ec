"""Episodes at hosts of environments equal episodes on this machine with as many processes; a lost host costs none."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from packages.cluster.tests.helpers import ray_nodes
from slimrl.config.deployment import DeploymentConfig
from slimrl.environments.find import load_taskset, tasks_of
from slimrl.errors import UserError
from slimrl.io.process_tree import start_time
from slimrl.rollout.worker.process import Source
from slimrl.rollout.worker.program import Start, start_here
from slimrl.rollout.worker.taskset import load_on_hosts
from slimrl_cluster.services import environment_hosts
from slimrl_cluster.services.environment_hosts import start_at_new_host, worker_starts
from slimrl_cluster.services.ray_cluster import NAMESPACE, RAY_ADDRESS, import_ray
from tests.rollout.worker.test_taskset import FILE, play

SLOW = Path(__file__).with_name("slow_worlds.py")


@pytest.fixture(scope="module")
def on_ray() -> Iterator[list[Start]]:
    """Places at two hosts of a Ray cluster."""
    with ray_nodes(2) as nodes, pytest.MonkeyPatch.context() as patch:
        patch.setenv(RAY_ADDRESS, nodes.address)
        patch.setenv(NAMESPACE, "of a run")
        yield worker_starts(DeploymentConfig(num_workers=2, cpus=0.1))
        import_ray().shutdown()


def load(name: str, starts: Sequence[Start], file: Path = FILE) -> Any:
    return load_on_hosts(Source(f"{file}:{name}", {}, 20.0), starts)


def await_gone(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while start_time(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not start_time(pid)


def check_episodes(starts: Sequence[Start]) -> None:
    """Episodes equal those in the run's own process, and a worker ends with the run that started it."""
    remote, here = load("Full", starts), load_taskset(f"{FILE}:Full", {})
    remote.begin_step("a")
    assert play(remote) == play(here)
    workers = {seat.running().pid for seat in remote._seats}
    assert len(workers) == 2
    for seat in remote._seats:
        seat.close()
    assert all(map(await_gone, workers))


@pytest.mark.slow
def test_without_ray_the_workers_are_processes_of_this_machine() -> None:
    starts = worker_starts(DeploymentConfig(type="processes", num_workers=2))
    assert starts == [start_here, start_here]
    check_episodes(starts)


@pytest.mark.nightly
def test_at_hosts_of_a_cluster_episodes_are_as_here(on_ray: list[Start], capfd) -> None:
    check_episodes(on_ray)


@pytest.mark.nightly
def test_a_host_that_is_lost_loses_no_episode(on_ray: list[Start]) -> None:
    remote = load("Computing", on_ray[:1], SLOW)
    world = remote.environment(tasks_of(remote, "train")[0])
    asyncio.run(world.start())
    worker = remote._seats[0].running().pid
    host = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(host, signal.SIGKILL)
    assert await_gone(worker)  # the kernel ends it with its host
    assert asyncio.run(world.step("go on")).done


@pytest.mark.nightly
def test_without_room_for_a_host_the_run_is_told(on_ray: list[Start], monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.setattr(environment_hosts, "PATIENCE_S", 3.0)
    with pytest.raises(UserError, match=r"a host of environments cannot be used, for 3 s now"):
        start_at_new_host(ray, 999.0)()


@pytest.mark.slow
def test_several_environments_compute_at_once() -> None:
    remote = load("Computing", [start_here, start_here], SLOW)
    worlds = [remote.environment(task) for task in tasks_of(remote, "train")[:2]]

    async def both() -> float:
        await asyncio.gather(*(world.start() for world in worlds))
        began = time.monotonic()
        await asyncio.gather(*(world.step("compute") for world in worlds))
        return time.monotonic() - began

    assert asyncio.run(both()) < 1.9  # each blocks its process for a second


@pytest.mark.slow
def test_an_episode_is_opened_while_another_one_of_its_process_computes() -> None:
    remote = load("Computing", [start_here, start_here], SLOW)
    first, second, third = (remote.environment(task) for task in tasks_of(remote, "train")[:3])

    async def longest_pause() -> float:
        await asyncio.gather(first.start(), second.start())
        opening = asyncio.gather(first.step("compute"), third.start())  # in the same process
        longest, last = 0.0, time.monotonic()
        while not opening.done():
            await asyncio.sleep(0.01)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        await opening
        return longest

    assert asyncio.run(longest_pause()) < 0.5
