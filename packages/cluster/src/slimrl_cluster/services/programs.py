"""Defines the interface for starting and watching programs, as child processes on this machine or through Ray on a
node."""

import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from slimrl_cluster.transport.roster import Facts

REFUSAL = 2  # the exit status of a command after a user's mistake
ADDRESS = "{address}"  # placeholder in a command for the address of the machine that runs it


@dataclass(frozen=True, slots=True)
class Needs:
    """The resources that a program needs. A cluster uses them to choose a node for the program."""

    cpus: float = 1.0
    gpus: int = 0

    def __str__(self) -> str:
        gpus = f" and {self.gpus} GPU{'s' if self.gpus > 1 else ''}" if self.gpus else ""
        return f"{self.cpus:g} CPU{'s' if self.cpus != 1 else ''}{gpus}"


@dataclass(frozen=True, slots=True)
class End:
    """The exit status of a program, and a description of its end. The status is below 0 for a signal, and None if the
    program was lost with its machine."""

    status: int | None
    text: str

    @property
    def is_good(self) -> bool:
        return self.status == 0

    @property
    def has_refused(self) -> bool:
        """True if the program has stopped because of a user's mistake, which it has reported."""
        return self.status == REFUSAL


class Program(Protocol):
    """A started program, or several programs that are treated as one, such as the ranks of a trainer."""

    name: str

    @property
    def end(self) -> End | None:
        """The program's end; None while the program runs."""

    @property
    def process(self) -> str:
        """The program's process and host as a text, such as `4711` or `4711 on 10.0.0.2`."""

    def new_lines(self, most: int = sys.maxsize) -> list[str]:
        """Return the newest lines that the program has written since the last call, at most `most`."""

    def stop(self) -> None:
        """Stop the program as a signal would, and return when it has ended."""


class Programs(Protocol):
    """Starts programs, and stops them when it is closed."""

    def start(self, name: str, command: Sequence[str], needs: Needs) -> Program:
        """Start a program; its output goes to `NAME.log`."""

    def start_ranks(self, name: str, command: Sequence[str], num: int, needs: Needs) -> Program:
        """Start `num` copies of a program, which connect to each other like the ranks of torchrun. Each copy gets the
        resources `needs`."""

    def members(self) -> Mapping[str, Facts]:
        """Return the facts that the parts of the run have announced, by name. Return an empty mapping if the parts
        announce themselves with files."""


class Log:
    """A reader for the new lines of a log file. A program appends to the file."""

    def __init__(self, directory: Path, name: str) -> None:
        self.path = directory / f"{name}.log"
        self._read = self.path.stat().st_size if self.path.exists() else 0

    def new_lines(self, most: int = sys.maxsize) -> list[str]:
        """Return the newest lines since the last call, at most `most`."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._read)
            whole = file.read().rpartition(b"\n")[0]  # without an incomplete line, which the next call reads
        self._read += len(whole) + 1 if whole else 0
        return whole.decode("utf-8", "replace").splitlines()[-most:]


def free_port(address: str) -> int:
    """Return a port on which nothing listens at the moment. `address` belongs to this machine."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def describe_status(status: int) -> str:
    """Describe the end of a process with this exit status.

    >>> describe_status(-9), describe_status(1)
    ('was ended by SIGKILL', 'has ended with status 1')
    """
    return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"has ended with status {status}"
