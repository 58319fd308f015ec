"""Starts processes that share a training, with torchrun and by hand. By hand nothing ends the others when one ends."""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Processes of one machine meet at its loopback interface, also where its name leads nowhere.
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
ENVIRONMENT = {**os.environ, **LOOPBACK, "OMP_NUM_THREADS": "1"}


def torchrun(num: int, *program: str) -> list[str]:
    """The arguments of Python that start a program in `num` processes."""
    return ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num), *program]


def start(arguments: Sequence[str], environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """Python with these arguments, whose output is kept."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**ENVIRONMENT, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def start_ranks(num: int, arguments: Sequence[str]) -> list[subprocess.Popen[str]]:
    """Python `num` times with these arguments, and with the variables that torchrun would set."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(num), "TORCHELASTIC_RUN_ID": "x"}
    return [start(arguments, {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(num)]


def outputs_of(processes: Sequence[subprocess.Popen[str]], timeout_s: float = 120) -> list[str]:
    """What each process has written when it has ended; none is left running."""
    try:
        return [process.communicate(timeout=timeout_s)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()


def run_all(commands: Sequence[Sequence[str]]) -> None:
    """Python with each of these arguments at the same time, each to its end, which must be a success."""
    processes = [start(command) for command in commands]
    for process, output in zip(processes, outputs_of(processes, 600), strict=True):
        assert process.returncode == 0, output
