"""Episodes at hosts of environments are those of here, on as many processes; a host that is lost loses no episode."""

import asyncio
import errno
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slimrl.environments.find import load_taskset, tasks_of
from slimrl.errors import RolloutError, UserError
from slimrl.io.process_tree import start_time
from slimrl.rollout.worker.process import Source
from slimrl.rollout.worker.program import start_here
from slimrl.rollout.worker.taskset import load_on_hosts
from slimrl.rollout.worker.wire import receive_message, send_message
from slimrl_cluster.rollout.host import WorkerHost
from slimrl_cluster.rollout.remote import start_at
from tests.rollout.worker.test_taskset import FILE, play

KEY = "key"
SLOW = Path(__file__).with_name("slow_worlds.py")
HOST = """
import sys
from slimrl_cluster.rollout.host import WorkerHost
host = WorkerHost("127.0.0.1", sys.argv[1])
print(host.address, flush=True)
host.serve()
"""


@pytest.fixture
def address() -> Iterator[str]:
    """A host in a thread of this process."""
    host = WorkerHost("127.0.0.1", KEY)
    thread = threading.Thread(target=host.serve)
    thread.start()
    yield host.address
    host.close()
    thread.join()


@pytest.fixture
def host() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A host that is a process, and its address."""
    command = [sys.executable, "-c", HOST, KEY]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield process, process.stdout.readline().strip()
        process.kill()


def load(name: str, *addresses: str, file: Path = FILE, timeout_s: float = 20.0, memory_gb: float = 0.0) -> Any:
    starts = [start_at(lambda address=address: address, KEY, 5.0) for address in addresses]
    return load_on_hosts(Source(f"{file}:{name}", {}, timeout_s, memory_gb), starts)


def await_gone(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while start_time(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not start_time(pid)


@pytest.mark.slow
def test_episodes_at_two_hosts_are_those_of_the_runs_own_process(address: str) -> None:
    remote, here = load("Full", address, address), load_taskset(f"{FILE}:Full", {})
    remote.begin_step("a")
    assert play(remote) == play(here)
    assert len({seat.running().pid for seat in remote._seats}) == 2


@pytest.mark.slow
def test_several_environments_compute_at_once(address: str) -> None:
    remote = load("Computing", address, address, file=SLOW)
    worlds = [remote.environment(task) for task in tasks_of(remote, "train")[:2]]

    async def both() -> float:
        await asyncio.gather(*(world.start() for world in worlds))
        began = time.monotonic()
        await asyncio.gather(*(world.step("compute") for world in worlds))
        return time.monotonic() - began

    assert asyncio.run(both()) < 1.7  # each takes a second, in which it lets nothing else of its process go on


@pytest.mark.slow
def test_an_episode_is_opened_while_another_one_of_its_process_computes(address: str) -> None:
    remote = load("Computing", address, address, file=SLOW)
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


def test_a_host_that_closes_ends_its_workers() -> None:
    host = WorkerHost("127.0.0.1", KEY)
    thread = threading.Thread(target=host.serve)
    thread.start()
    remote = load("Full", host.address)
    worker = remote._seats[0].running().pid
    host.close()
    thread.join()
    assert await_gone(worker)


@pytest.mark.nightly
def test_an_environment_that_takes_too_much_memory_is_ended_and_another_comes(address: str) -> None:
    for starts in ([start_here], [start_at(lambda: address, KEY, 5.0)]):
        remote = load_on_hosts(Source(f"{SLOW}:Leaking", {}, 20.0, memory_gb=0.4), starts)
        task = tasks_of(remote, "train")[0]
        world = remote.environment(task)
        asyncio.run(world.start())
        with pytest.raises(RolloutError, match=r"more than memory_gb = 0.4, and was ended") as raised:
            asyncio.run(world.step("leak"))
        assert raised.value.reason == "environment_died"
        another = remote.environment(task)
        asyncio.run(another.start())
        assert asyncio.run(another.step("go on")).done


@pytest.mark.slow
def test_a_host_that_is_lost_loses_no_episode(address: str, host: tuple[subprocess.Popen[str], str]) -> None:
    process, theirs = host
    places = [theirs]
    remote = load_on_hosts(Source(f"{SLOW}:Computing", {}, 20.0), [start_at(lambda: places[-1], KEY, 5.0)])
    world = remote.environment(tasks_of(remote, "train")[0])
    asyncio.run(world.start())
    worker = remote._seats[0].running().pid
    places.append(address)
    process.kill()
    assert await_gone(worker)  # the kernel ends it with its host
    assert asyncio.run(world.step("go on")).done


def test_a_worker_ends_with_the_run_that_has_asked_for_it(address: str) -> None:
    remote = load("Full", address)
    worker = remote._seats[0].running().pid
    remote._seats[0].close()
    assert await_gone(worker)


class _Exhausted:
    """A socket that listens, and cannot accept its first connection, as without a free descriptor."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening, self._has_failed = listening, False
        self.shutdown, self.close = listening.shutdown, listening.close

    def accept(self) -> tuple[socket.socket, Any]:
        if not self._has_failed:
            self._has_failed = True
            raise OSError(errno.EMFILE, "Too many open files")
        return self._listening.accept()


@pytest.mark.slow
def test_a_host_that_was_short_of_descriptors_goes_on() -> None:
    host = WorkerHost("127.0.0.1", KEY)
    host._listening = _Exhausted(host._listening)  # type: ignore[assignment]
    thread = threading.Thread(target=host.serve)
    thread.start()
    ours, program = start_at(lambda: host.address, KEY, 5.0)({})
    program.kill()
    ours.close()
    host.close()
    thread.join()


def test_a_key_that_is_no_text_is_another(address: str) -> None:
    name, _, port = address.rpartition(":")
    with socket.create_connection((name, int(port)), 5.0) as control:
        send_message(control, {"key": "\ud800", "do": "start", "variables": {}})
        assert receive_message(control) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("find", "key", "message"),
    [
        (lambda: "", KEY, "none is there"),
        (lambda: "127.0.0.1:1", KEY, "refused"),
        (None, "other", "its key is another"),
    ],
)
def test_without_a_host_that_answers_the_run_is_told(
    address: str, find: Callable[[], str] | None, key: str, message: str
) -> None:
    start = start_at(find or (lambda: address), key, 0.7)
    with pytest.raises(UserError, match=rf"no host of environments can be used, for 0.7 s now \(.*{message}"):
        start({})
