"""Worker processes of environments: several on this machine or, under Ray, at hosts on any node.

A host is a Ray actor. If it is lost, Ray restarts it on another node. It starts worker programs on its node, and
reports their state. The run opens two TCP connections per program. The host accepts them only with a key that it has
sent through Ray. The first one belongs to the program. The second one carries no data: when it closes, the host is
lost.
"""

import hmac
import os
import secrets
import select
import socket
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from slimrl.config.deployment import DeploymentConfig
from slimrl.errors import UserError
from slimrl.rollout.worker.program import CLOSE_S, LOST_STATUS, ChildProgram, Program, Start, start_here
from slimrl_cluster.services.ray_host import RAY_ADDRESS, node_address
from slimrl_cluster.services.ray_programs import connect

CONNECT_S = 10.0
PATIENCE_S = 120.0  # seconds to wait for a host, or for the host that replaces it
SILENT_S = 30.0  # seconds of silence after which a host's programs count as lost
BEAT_S = 1.0  # seconds between two reports on a program
POLL_S = 0.5
MOST_PROGRAMS = 64  # per host, because each needs a thread for its reports


class EnvironmentHost:
    """A Ray actor that runs worker programs on one node. Ray calls its methods concurrently."""

    def __init__(self) -> None:
        self._starting = ThreadPoolExecutor(1)  # Linux kills a program together with the thread that started it
        self._listening: dict[str, socket.socket] = {}
        self._programs: dict[int, tuple[ChildProgram, list[str], socket.socket]] = {}
        self._unused: list[socket.socket] = []

    def listen(self) -> tuple[str, int, str]:
        """Listen on a free port of this node. Return the address, the port, and the key that each of two connections
        must send."""
        address, key = node_address(), secrets.token_hex(16)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listening[key] = socket.create_server((address, 0), family=family)
        return address, self._listening[key].getsockname()[1], key

    def start(self, key: str, variables: Mapping[str, str]) -> int:
        """Accept two connections with the key, start a program on the first one, and return its process id. Raises
        OSError if the connections do not arrive, or the program cannot be started."""
        with self._listening.pop(key) as listening:
            listening.settimeout(CONNECT_S)
            connection, line = (_accept(listening, key) for _ in range(2))
        while self._unused:
            self._unused.pop().close()
        output: list[str] = []
        program = self._starting.submit(ChildProgram, connection, dict(variables), output.append).result()
        self._programs[program.pid] = program, output, line
        return program.pid

    def look(self, pid: int) -> tuple[int | None, int, str]:
        """Return a program's exit status, its memory in bytes, and its new output. The status is None if the program
        still runs after `BEAT_S` seconds."""
        program, output, line = self._programs[pid]
        if (status := program.wait(BEAT_S)) is not None:
            program.close()
            self._unused.append(line)  # close it later: the run must receive the status first
        return status, program.memory(), "".join(output.pop(0) for _ in range(len(output)))

    def kill(self, pid: int) -> None:
        """Kill a program with all its descendants."""
        self._programs[pid][0].kill()


class HostedProgram:
    """A program that a host has started. The host reports its state. `line` is the connection to the host without
    data."""

    def __init__(self, ray: Any, host: Any, pid: int, line: socket.socket) -> None:
        self.pid = pid
        self._ray, self._host, self._line = ray, host, line
        self._memory, self._status = 0, LOST_STATUS
        self._ended = threading.Event()
        threading.Thread(target=self._follow, name="environment's host", daemon=True).start()

    def is_running(self) -> bool:
        if not self._ended.is_set():
            poll = select.poll()
            poll.register(self._line, select.POLLIN)
            if poll.poll(0):
                self._ended.set()
        return not self._ended.is_set()

    def memory(self) -> int:
        return self._memory

    def kill(self) -> None:
        if self.is_running() and self._ray.is_initialized():
            self._host.kill.remote(self.pid)
            self._ended.wait(2 * CLOSE_S)

    def wait(self, seconds: float | None = None) -> int | None:
        return self._status if self._ended.wait(seconds) else None

    def close(self) -> None:
        """Close the connection to the host. The last output has arrived with the exit status."""
        self._line.close()

    def _follow(self) -> None:
        status = None
        try:
            while status is None:
                status, self._memory, text = self._ray.get(self._host.look.remote(self.pid), timeout=SILENT_S)
                sys.stderr.write(text)
            self._status = status
        except self._ray.exceptions.RayError:  # the host is lost, or silent
            pass
        finally:
            self._ended.set()


def worker_starts(deployment: DeploymentConfig) -> list[Start]:
    """Return `num_workers` functions that each start a worker process. If this process belongs to a Ray cluster, they
    start it at a host on any node, else on this machine. Raises UserError if the cluster does not answer."""
    address = os.environ.get(RAY_ADDRESS, "") if deployment.type == "ray" else ""
    if not deployment.num_workers or not address:
        return [start_here] * deployment.num_workers
    ray = connect(address)
    return [_start_at_new_host(ray, deployment.cpus) for _ in range(deployment.num_workers)]


def _start_at_new_host(ray: Any, cpus: float) -> Start:
    """Create a host, and return a function that starts a program there. The function raises UserError if the host
    cannot be used within `PATIENCE_S`."""
    options = {"num_cpus": cpus, "max_restarts": -1, "max_concurrency": MOST_PROGRAMS, "scheduling_strategy": "SPREAD"}
    host = ray.remote(EnvironmentHost).options(**options).remote()

    def start(variables: Mapping[str, str]) -> tuple[socket.socket, Program]:
        deadline, failure = time.monotonic() + PATIENCE_S, ""
        while (left_s := deadline - time.monotonic()) > 0:
            try:
                return _start(ray, host, variables, left_s)
            except (OSError, ray.exceptions.RayError) as error:
                failure = str(error).partition("\n")[0]
            time.sleep(POLL_S)
        raise UserError(f"a host of environments cannot be used, for {PATIENCE_S:g} s now ({failure}).")

    return start


def _start(ray: Any, host: Any, variables: Mapping[str, str], patience_s: float) -> tuple[socket.socket, Program]:
    """Start a program at a host. Return its socket and the program. Raises OSError or RayError."""
    address, port, key = ray.get(host.listen.remote(), timeout=patience_s)
    starting = host.start.remote(key, dict(variables))
    with ExitStack() as opened:
        connections = []
        for _ in range(2):
            connections.append(opened.enter_context(socket.create_connection((address, port), CONNECT_S)))
            connections[-1].sendall(key.encode())
        pid = ray.get(starting, timeout=CONNECT_S)
        opened.pop_all()
    ours, line = map(_without_delay, connections)
    return ours, HostedProgram(ray, host, pid, line)


def _accept(listening: socket.socket, key: str) -> socket.socket:
    """Accept a connection. Raises OSError if it does not send the key."""
    connection, _ = listening.accept()
    connection.settimeout(CONNECT_S)
    if not hmac.compare_digest(connection.recv(len(key), socket.MSG_WAITALL), key.encode()):
        connection.close()
        raise OSError("another program has connected")
    return _without_delay(connection)


def _without_delay(connection: socket.socket) -> socket.socket:
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
