"""How the programs of a run are started and watched, wherever they run: as children here, or by Ray on some node."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

REFUSAL = 2  # the exit status of a command after a mistake of the user's
ADDRESS = "{address}"  # stands in a command for the address of the machine that runs it


@dataclass(frozen=True, slots=True)
class Needs:
    """What a program needs of the machine that it runs on, where there are several to choose from."""

    cpus: float = 1.0
    gpus: int = 0

    def __str__(self) -> str:
        gpus = f" and {self.gpus} GPU{'s' if self.gpus > 1 else ''}" if self.gpus else ""
        return f"{self.cpus:g} CPU{'s' if self.cpus != 1 else ''}{gpus}"


@dataclass(frozen=True, slots=True)
class End:
    """How a program has ended: its exit status, below 0 for a signal, None if it was lost with its machine; and where,
    in words."""

    status: int | None
    text: str

    @property
    def is_good(self) -> bool:
        return self.status == 0

    @property
    def has_refused(self) -> bool:
        """Whether it has said itself what its user must mend."""
        return self.status == REFUSAL


class Program(Protocol):
    """One program that was started, or several that are one to the run, as the ranks of a trainer."""

    name: str

    @property
    def end(self) -> End | None:
        """How it has ended; None while it runs."""

    @property
    def process(self) -> str:
        """Its process and where that runs, in words, such as `4711` or `4711 on 10.0.0.2`."""

    @property
    def members(self) -> Sequence[tuple[str, int]]:
        """The host and the process id of each of its processes that have started."""

    def new_lines(self, most: int = sys.maxsize) -> list[str]:
        """The lines that it has written since the last call, the last `most` of them."""

    def stop(self) -> None:
        """End it, as a signal does; returns when it has ended."""


class Programs(Protocol):
    """What starts programs, which end with it."""

    def start(self, name: str, command: Sequence[str], needs: Needs) -> Program:
        """Start a program; what it writes goes to `NAME.log`."""

    def start_ranks(self, name: str, command: Sequence[str], num: int, needs: Needs) -> Program:
        """Start `num` programs that find one another as torchrun's do; each needs as much."""


def describe_status(status: int) -> str:
    """How a process with this exit status has ended.

    >>> describe_status(-9), describe_status(1)
    ('was ended by SIGKILL', 'has ended with status 1')
    """
    return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"has ended with status {status}"


def rank_variables(rank: int, num: int, address: str, port: int) -> Mapping[str, str]:
    """The environment variables by which one of `num` ranks, each on a machine of its own or alone on its GPU, finds
    the others: those of torchrun."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(num),
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": f"slimrl-{os.getpid()}",
    }
