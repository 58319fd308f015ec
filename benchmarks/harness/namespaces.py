"""A Ray cluster whose nodes have a network of their own each: Linux namespaces, joined by a bridge. Needs root.

A node's cable can be cut and mended, and its power too. Nothing of it is reached from outside: the bridge is in the
namespace of the head, where programs that use the cluster run as well.
"""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

HEAD = "slimrl-0"
SUBNET = "10.77.0"
PORT = 6379
MEMORY = "80000000"  # for a node's object store, in bytes
STARTED, START_S, TRIES = "Ray runtime started", 60.0, 3  # a machine that is busy may need another try
RAY = [str(Path(sys.executable).with_name("ray")), "start", "--block", "--object-store-memory", MEMORY]
QUIET = {"RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token"}


class Network:
    """The namespaces and the cluster in them, as a context. Nodes have numbers from 1."""

    def __init__(self, num: int, log: Path) -> None:
        self.address = f"{SUBNET}.1:{PORT}"
        self._path, self._log = log, log.open("ab")
        self._processes: list[subprocess.Popen[bytes]] = []
        self._numbers = range(1, num + 1)

    def __enter__(self) -> Self:
        self._remove()
        os.environ |= {**QUIET, "RAY_AUTH_TOKEN": secrets.token_hex(32)}  # for nodes, and for who uses them
        _ip("netns", "add", HEAD)
        _ip("-n", HEAD, "link", "set", "lo", "up")
        _ip("-n", HEAD, "link", "add", "bridge", "type", "bridge")
        _ip("-n", HEAD, "addr", "add", f"{SUBNET}.1/24", "dev", "bridge")
        _ip("-n", HEAD, "link", "set", "bridge", "up")
        for number in self._numbers:
            space, cable = _space(number), f"cable{number}"
            _ip("netns", "add", space)
            _ip("-n", HEAD, "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("-n", HEAD, "link", "set", cable, "master", "bridge", "up")
            _ip("-n", space, "addr", "add", f"{address_of(number)}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                _ip("-n", space, "link", "set", device, "up")
        self._start_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for space in (HEAD, *map(_space, self._numbers)):
            kill_all(space)
        for process in self._processes:
            process.wait()
        self._remove()
        self._log.close()

    def inside(self, words: Sequence[str]) -> list[str]:
        """The words of a command that runs it in the namespace of the head."""
        return ["ip", "netns", "exec", HEAD, *words]

    def start_node(self, number: int) -> None:
        """Start Ray on a node, and wait until it has joined. The script exits if it does not."""
        self._start_ray(_space(number), address_of(number), ["--address", self.address, "--num-cpus", "2"])

    def lose_head(self) -> None:
        """End all that runs on the head, without which the nodes end too; then start it and them anew."""
        for space in (HEAD, *map(_space, self._numbers)):
            kill_all(space)
        self._start_all()

    def cut_power(self, number: int) -> None:
        """End all that runs on a node, at once."""
        kill_all(_space(number))

    def cut_cable(self, number: int) -> None:
        """Separate a node from all others."""
        _ip("-n", HEAD, "link", "set", f"cable{number}", "down")

    def mend_cable(self, number: int) -> None:
        """Join a node with the others again."""
        _ip("-n", HEAD, "link", "set", f"cable{number}", "up")

    def is_empty(self, number: int) -> bool:
        """Whether nothing runs on a node."""
        return not _pids(_space(number))

    def _start_all(self) -> None:
        head = ["--head", "--port", str(PORT), "--num-cpus", "0", "--include-dashboard", "false"]
        self._start_ray(HEAD, f"{SUBNET}.1", head)  # nodes that come before it is there give up
        for number in self._numbers:
            self.start_node(number)

    def _start_ray(self, space: str, address: str, words: Sequence[str]) -> None:
        command = ["ip", "netns", "exec", space, *RAY, "--node-ip-address", address, *words]
        for _ in range(TRIES):
            begin, deadline = self._path.stat().st_size, time.monotonic() + START_S
            self._processes.append(process := subprocess.Popen(command, stdout=self._log, stderr=self._log))
            while process.poll() is None and time.monotonic() < deadline:
                if STARTED in self._path.read_bytes()[begin:].decode("utf-8", "replace"):
                    return
                time.sleep(0.2)
            kill_all(space)
        raise SystemExit(f"Ray has not started at {address}; {self._path} says why.")

    def _remove(self) -> None:
        for space in (HEAD, *map(_space, self._numbers)):
            subprocess.run(["ip", "netns", "del", space], stderr=subprocess.DEVNULL, check=False)


def address_of(number: int) -> str:
    """The address of a node."""
    return f"{SUBNET}.{10 + number}"


def kill_all(space: str) -> None:
    """End all processes of a namespace, with those that they start meanwhile."""
    while pids := _pids(space):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


def _space(number: int) -> str:
    return f"slimrl-{number}"


def _pids(space: str) -> list[int]:
    found = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True, check=False).stdout
    return [int(pid) for pid in found.split()]


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
