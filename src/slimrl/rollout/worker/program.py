"""Starts a worker's program as a child of this process. slimrl-cluster starts it on another machine instead."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Protocol

from slimrl.errors import visible
from slimrl.io.process_tree import find_process_tree, kill, start_time

PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from slimrl.rollout.worker.serve import main; main(int(sys.argv[2]))"
)
MAX_OUTPUT = 1 << 20  # bytes that a worker may print
CLOSE_S = 2.0  # seconds within which a killed program must end


class Program(Protocol):
    """A started worker program, with all its descendants."""

    pid: int

    def is_running(self) -> bool:
        """Return True if the program still runs. Its descendants do not count."""

    def kill(self) -> None:
        """Kill the program and all its descendants."""

    def wait(self, seconds: float | None = None) -> int | None:
        """Wait for the end, and return the exit status: negative for a signal. Return None if the program still
        runs after `seconds`; without `seconds`, wait without a limit."""

    def close(self) -> None:
        """Wait until the program's last output has been shown."""


# A function that starts a program. It returns the socket for messages and the program.
Start = Callable[[], tuple[socket.socket, Program]]


class ChildProgram:
    """A program that runs as a child of this process. The program inherits the socket `theirs`; the constructor closes
    `theirs` in this process. `show` receives the first MAX_OUTPUT bytes of the program's output. Linux kills the
    program when the thread that started it ends."""

    def __init__(self, theirs: socket.socket, variables: Mapping[str, str], show: Callable[[str], None]) -> None:
        places = [place for place in sys.path if isinstance(place, str)]  # Python ignores Path objects
        reads, writes = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-c", PROGRAM, json.dumps(places), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=writes,
                stderr=writes,
                pass_fds=[theirs.fileno()],
                env={**os.environ, **variables},
                start_new_session=True,
            )
        except OSError:
            os.close(reads)
            raise
        finally:
            os.close(writes)
            theirs.close()
        self.pid = self._process.pid
        self._known = {self.pid: start_time(self.pid)}
        self._output = threading.Thread(
            target=_show_output, args=(reads, show), name="environment's output", daemon=True
        )
        self._output.start()

    def is_running(self) -> bool:
        return bool(start_time(self.pid))

    def kill(self) -> None:
        tree = {**self._known, **find_process_tree(self._known)}
        # On Linux the program kills all its descendants, also those outside its process group and session (`serve.py`).
        self._process.terminate()
        self.wait(CLOSE_S)
        kill(tree, CLOSE_S)

    def wait(self, seconds: float | None = None) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    def close(self) -> None:
        self._output.join(CLOSE_S)


def start_here(variables: Mapping[str, str] = MappingProxyType({})) -> tuple[socket.socket, Program]:
    """Start a program as a child of this process, with additional environment variables. Return the socket for
    messages, and the program. Its output goes to this process's standard error."""
    ours, theirs = socket.socketpair()
    try:
        return ours, ChildProgram(theirs, variables, _print_error)
    except OSError:
        ours.close()
        raise


def _print_error(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _show_output(reads: int, show: Callable[[str], None]) -> None:
    """Pass a worker's output to `show`, up to a limit, without control sequences for the terminal."""
    left = MAX_OUTPUT
    with open(reads, "rb", buffering=0) as file:
        while data := file.read(1 << 12):
            if left > 0:
                text = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
                left -= len(data)
                more = f"\n[an environment has printed {MAX_OUTPUT} bytes; more is not shown]\n" if left <= 0 else ""
                show(visible(text, len(text)) + more)
