"""Defines the Ray actor that starts one program of a run on a node, and reports the program's end.

The program is a child process of the actor, and stops when the actor stops. Ray stops the actor when the run ends, or
when the node is lost.
"""

import hashlib
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from slimrl.environments.find import PACKAGES
from slimrl.errors import UserError
from slimrl_cluster.services.children import Child, Children
from slimrl_cluster.services.programs import ADDRESS, End, free_port
from slimrl_cluster.services.ray_cluster import PROGRAM, RAY_ADDRESS

ALIKE = ("torch", "transformers", "tokenizers", "numpy", "safetensors")  # the same versions on all nodes
THREADS = "OMP_NUM_THREADS"
POLL_S, TICK_S = 1.0, 0.2


class ProgramHost:
    """A Ray actor that runs one program on this node. Ray calls its methods one at a time."""

    def __init__(self, logs: str, directory: str, environment: Mapping[str, str], shares_cpus: bool) -> None:
        """Set `shares_cpus` if less than one CPU is reserved. The program then shares all CPUs with others, like a part
        that is started without Ray."""
        self._logs, self._directory, self._environment = Path(logs), directory, environment
        if shares_cpus and os.environ.get(THREADS) == "1":
            del os.environ[THREADS]  # Ray sets it to 1 for less than two CPUs
        self._meeting: tuple[str, int] | None = None
        self._children: Children | None = None
        self._child: Child | None = None

    def meeting_place(self) -> tuple[str, int]:
        """Return an address and a port of this node, at which the other ranks connect to this host's program."""
        self._meeting = self._meeting or (node_address(), free_port(node_address()))
        return self._meeting

    def start(
        self, name: str, command: Sequence[str], expected: Mapping[str, str], rank: int, num: int, first: Any
    ) -> tuple[int, str]:
        """Start the program with this node's Python, as one of `num` ranks. `first` is the host of rank 0. Return the
        program's process id and this node's address. A second call starts nothing.

        Raises UserError if the run's directory is missing here, or if `versions` differs from `expected`.
        """
        here = f"the node {node_address()} ({platform.node()})"
        if differences := describe_differences(expected, versions()):
            raise UserError(f"{here} has {differences}: all nodes need the same versions.")
        try:
            os.chdir(self._directory)
        except OSError as error:
            raise UserError(
                f"{here} cannot enter {self._directory} ({error.strerror}), where the run was started: all nodes must "
                "see it under the same path."
            ) from error
        if self._child is None:
            variables = {RAY_ADDRESS: _cluster(), PROGRAM: name, **self._environment}
            if num > 1:
                place = _ray().get(first.meeting_place.remote()) if rank else self.meeting_place()
                variables |= _torchrun(rank, num, *place)
            self._children = Children(self._logs, variables)
            words = [node_address() if word == ADDRESS else word for word in command]
            self._child = self._children.start(name, [sys.executable, *words[1:]])
        return self._child.pid, node_address()

    def poll(self) -> End | None:
        """Wait up to `POLL_S` for the program's end, and return it; None while the program runs."""
        assert self._child
        deadline = time.monotonic() + POLL_S
        while self._child.end is None and time.monotonic() < deadline:
            time.sleep(TICK_S)
        return self._child.end

    def stop(self) -> End | None:
        """Stop the program and all processes that it has started."""
        if self._children:
            self._children.close()
        return self._child.end if self._child else None


def _torchrun(rank: int, num: int, address: str, port: int) -> Mapping[str, str]:
    """Return the environment variables that torchrun would set for the rank `rank` of `num`. All ranks meet at
    `address` and `port`. LOCAL_RANK is always 0, because Ray shows each rank only its own GPU."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(num),
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": f"slimrl-{port}",
    }


def _ray() -> Any:
    import ray  # only here: a machine without a cluster needs no Ray

    return ray


def node_address() -> str:
    """Return the address at which other nodes reach this node."""
    return str(_ray().util.get_node_ip_address())


def _cluster() -> str:
    return str(_ray().get_runtime_context().gcs_address)


@cache
def versions() -> dict[str, str]:
    """Return the versions that must be equal on all nodes: the versions of slimrl's own code, of Python, and of the
    packages for computations."""
    return {"slimrl": _code_digest(), "python": platform.python_version(), **{name: version(name) for name in ALIKE}}


def describe_differences(own: Mapping[str, str], others: Mapping[str, str]) -> str:
    """Describe the differences between the versions of two nodes. Return an empty text if there are none.

    >>> describe_differences({"torch": "2.13.0", "python": "3.11.7"}, {"torch": "2.14.0", "python": "3.11.7"})
    'torch 2.14.0 in place of 2.13.0'
    """
    differing = [name for name in own if own[name] != others.get(name)]
    return ", ".join(f"{name} {others.get(name)} in place of {own[name]}" for name in differing)


def _code_digest() -> str:
    """Return a digest of the Python files of slimrl and its plug-ins. A version number would not show local changes."""
    digest = hashlib.sha256()
    for name in sorted(PACKAGES):
        if (spec := find_spec(name)) and spec.origin:
            root = Path(spec.origin).parent
            for path in sorted(root.rglob("*.py")):
                digest.update(f"{name}/{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]
