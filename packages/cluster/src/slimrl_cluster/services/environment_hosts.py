"""Starts worker processes for RL environments: on this machine or, in a Ray cluster, through hosts on any node.

A host is a Ray actor. If a host is lost, Ray restarts it on another node. A host starts worker programs on its node,
forwards bytes between them and the run, and reports their ends.
"""

import os
import select
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from slimrl.config.deployment import DeploymentConfig
from slimrl.errors import UserError
from slimrl.rollout.worker.program import CLOSE_S, LOST_STATUS, ChildProgram, Program, Start, start_here
from slimrl_cluster.services.ray_cluster import NAMESPACE, RAY_ADDRESS, connect, first_line

PATIENCE_S = 120.0  # seconds to wait for a host, also if Ray restarts a lost host
SILENT_S = 30.0  # seconds of silence after which a host's programs count as lost
BEAT_S = 1.0  # seconds between two reports on a program that sends nothing
POLL_S = 0.5
CHUNK = 1 << 20  # most bytes that are passed on at once
MOST_CALLS = 64  # concurrent calls to one host, which needs a waiting thread for each of its programs


class EnvironmentHost:
    """A Ray actor that runs worker programs on one node. Ray calls several of its methods at the same time."""

    def __init__(self) -> None:
        self._starting = ThreadPoolExecutor(1)  # Linux kills a program when the thread that started it ends
        self._programs: dict[int, tuple[ChildProgram, socket.socket, list[str]]] = {}

    def start(self) -> int:
        """Start a program, and return its process id. Raises OSError if a process cannot be started."""
        ours, theirs = socket.socketpair()
        output: list[str] = []
        program = self._starting.submit(ChildProgram, theirs, {}, output.append).result()
        self._programs[program.pid] = program, ours, output
        return program.pid

    def send(self, pid: int, data: bytes) -> None:
        """Send bytes to a program. Empty `data` closes the program's input."""
        _, sock, _ = self._programs[pid]
        if data:
            sock.sendall(data)
        else:
            sock.shutdown(socket.SHUT_WR)

    def receive(self, pid: int) -> tuple[bytes | None, str, int | None]:
        """Return the next bytes that a program sends, its new output, and its exit status. The bytes are None if none
        arrive within `BEAT_S`, and empty after the last bytes. The status is None until the program has ended and all
        bytes were returned."""
        program, sock, output = self._programs[pid]
        data, status = None, None
        if select.select([sock], [], [], BEAT_S)[0]:
            try:
                data = sock.recv(CHUNK)
            except ConnectionError:
                data = b""
        if not data:
            status = program.wait(0.0 if data is None else BEAT_S)  # its forks may keep the connection open
        if status is not None:
            program.close()
            sock.close()
            del self._programs[pid]
        return data, "".join(output.pop(0) for _ in range(len(output))), status

    def kill(self, pid: int) -> None:
        """Kill a program with all its descendants."""
        self._programs[pid][0].kill()


class HostedProgram:
    """A program that a host has started. Threads forward the bytes between the program and the socket `theirs`."""

    def __init__(self, ray: Any, host: Any, pid: int, theirs: socket.socket) -> None:
        self.pid = pid
        self._ray, self._host, self._theirs = ray, host, theirs
        self._status, self._ended = LOST_STATUS, threading.Event()
        for work in (self._send, self._receive):
            threading.Thread(target=work, name="environment's host", daemon=True).start()

    def is_running(self) -> bool:
        return not self._ended.is_set()

    def kill(self) -> None:
        if self.is_running() and self._ray.is_initialized():
            self._host.kill.remote(self.pid)
            self._ended.wait(2 * CLOSE_S)

    def wait(self, seconds: float | None = None) -> int | None:
        return self._status if self._ended.wait(seconds) else None

    def close(self) -> None:
        """Close the connection. No output is lost, because the last output arrives with the exit status."""
        self._theirs.close()

    def _send(self) -> None:
        with suppress(OSError, self._ray.exceptions.RayError):  # `_receive` reports the end
            while data := self._theirs.recv(CHUNK):
                self._ray.get(self._host.send.remote(self.pid, data))
            if self.is_running():
                self._host.send.remote(self.pid, b"")

    def _receive(self) -> None:
        status = None
        try:
            while status is None:
                data, text, status = self._ray.get(self._host.receive.remote(self.pid), timeout=SILENT_S)
                sys.stderr.write(text)
                with suppress(OSError):  # the run has closed its end of the socket
                    if data is not None:
                        self._theirs.sendall(data) if data else self._theirs.shutdown(socket.SHUT_WR)
            self._status = status
        except self._ray.exceptions.RayError:  # the host is lost, or silent
            pass
        finally:
            self._ended.set()
            with suppress(OSError):
                self._theirs.shutdown(socket.SHUT_RDWR)


def worker_starts(deployment: DeploymentConfig) -> list[Start]:
    """Return `num_workers` functions, each of which starts a worker process. If this process belongs to a Ray cluster,
    the worker runs at a host on any node, else on this machine. Raises UserError if the cluster does not answer."""
    if not deployment.num_workers or NAMESPACE not in os.environ:
        return [start_here] * deployment.num_workers
    ray = connect(os.environ[RAY_ADDRESS])
    return [start_at_new_host(ray, deployment.cpus) for _ in range(deployment.num_workers)]


def start_at_new_host(ray: Any, cpus: float) -> Start:
    """Create a host, and return a function that starts a program there. A call of this function raises UserError if the
    host cannot be used within `PATIENCE_S`."""
    options = {"num_cpus": cpus, "max_restarts": -1, "max_concurrency": MOST_CALLS, "scheduling_strategy": "SPREAD"}
    host = ray.remote(EnvironmentHost).options(**options).remote()

    def start() -> tuple[socket.socket, Program]:
        deadline, failure = time.monotonic() + PATIENCE_S, ""
        while (left_s := deadline - time.monotonic()) > 0:
            try:
                pid = ray.get(host.start.remote(), timeout=left_s)
            except ray.exceptions.RayError as error:
                failure = first_line(error)
                time.sleep(POLL_S)
                continue
            ours, theirs = socket.socketpair()
            return ours, HostedProgram(ray, host, pid, theirs)
        raise UserError(f"a host of environments cannot be used, for {PATIENCE_S:g} s now ({failure}).")

    return start
