"""The worker processes of `deployment.num_workers` share the episodes of an environment."""

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from packages.cluster.tests.helpers import wait_until
from slimrl.environments.find import load_taskset, tasks_of
from slimrl.io.process_tree import start_time
from slimrl.rollout.worker.process import Source
from slimrl.rollout.worker.program import start_here
from slimrl.rollout.worker.taskset import load_in_workers
from tests.rollout.worker.test_taskset import FILE, play

SLOW = Path(__file__).with_name("slow_worlds.py")


def load(name: str, num: int = 2, file: Path = FILE) -> Any:
    return load_in_workers(Source(f"{file}:{name}", {}, 20.0), [start_here] * num)


@pytest.mark.slow
def test_episodes_equal_those_in_the_runs_own_process_and_the_workers_end_with_it() -> None:
    remote, here = load("Full"), load_taskset(f"{FILE}:Full", {})
    remote.begin_step("a")
    assert play(remote) == play(here)
    workers = {seat.running().pid for seat in remote._seats}
    assert len(workers) == 2
    for seat in remote._seats:
        seat.close()
    wait_until(lambda: not any(map(start_time, workers)))


async def longest_pause(work: Coroutine[Any, Any, Any]) -> float:
    """Do the work, and return the longest time in seconds for which it has held this process."""
    working, longest, last = asyncio.ensure_future(work), 0.0, time.monotonic()
    while not working.done():
        await asyncio.sleep(0.01)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    await working
    return longest


@pytest.mark.slow
def test_several_environments_compute_at_once_and_one_is_opened_meanwhile() -> None:
    remote = load("Computing", file=SLOW)
    first, second, third = (remote.environment(task) for task in tasks_of(remote, "train")[:3])

    async def compute() -> tuple[float, float]:
        await asyncio.gather(first.start(), second.start())
        began = time.monotonic()
        await asyncio.gather(first.step("compute"), second.step("compute"))
        took = time.monotonic() - began
        again = remote.environment(tasks_of(remote, "train")[3])
        await again.start()
        pause = await longest_pause(asyncio.gather(again.step("compute"), third.start()))
        return took, pause

    took, pause = asyncio.run(compute())
    assert took < 1.9 and pause < 0.5  # each blocks its process for a second
