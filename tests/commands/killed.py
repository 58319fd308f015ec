"""Runs that are killed in the midst of their work, and go on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from slimrl.cli import run

DEADLINE_S = 300


def kill_at(flags: list[str], metrics: Path, lines: int) -> None:
    """Starts a command in a process of its own, and kills it once a file of metrics has so many lines."""
    process = subprocess.Popen(
        [sys.executable, "-m", "slimrl", *flags], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + DEADLINE_S
    while not (metrics.exists() and len(metrics.read_bytes().splitlines()) >= lines):
        assert process.poll() is None, process.communicate()[1].decode()
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def kill_and_resume(flags: list[str], metrics: Path, lines: int) -> None:
    """The same, and has the run go on to its end."""
    kill_at(flags, metrics, lines)
    assert run([*flags, "--resume"]) == 0
