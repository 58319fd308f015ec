"""One program of a run on a node of a Ray cluster: the actor that starts it there, and tells how it is.

The actor holds the program as a child, which ends with it: by Ray when the run ends, or with the node.
"""

import hashlib
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from slimrl.environments.find import PACKAGES
from slimrl.errors import UserError
from slimrl_cluster.services.children import Child, Children
from slimrl_cluster.services.ports import free_port
from slimrl_cluster.services.programs import ADDRESS, End

ALIKE = ("torch", "transformers", "tokenizers", "numpy", "safetensors")  # packages that all nodes must have alike
THREADS = "OMP_NUM_THREADS"
POLL_S, TICK_S = 1.0, 0.2


class ProgramHost:
    """A place for one program on this node. Its methods are called by Ray, one at a time."""

    def __init__(self, logs: str, directory: str, environment: Mapping[str, str], shares_cpus: bool) -> None:
        """`shares_cpus` is whether it has less than one CPU of its own: then it computes with all that there are, in
        turn with others, as parts do that are started without Ray."""
        self._logs, self._directory, self._environment = Path(logs), directory, environment
        if shares_cpus and os.environ.get(THREADS) == "1":
            del os.environ[THREADS]  # Ray's own, for less than two CPUs
        self._children: Children | None = None
        self._child: Child | None = None

    def meeting_place(self) -> tuple[str, int]:
        """An address and a free port of this node, where others can meet its program."""
        return node_address(), free_port(node_address())

    def start(
        self, name: str, command: Sequence[str], variables: Mapping[str, str], expected: Mapping[str, str]
    ) -> tuple[str, int, str]:
        """Start the program with this node's Python, and give its host, its process id and this node's address. A
        second call starts nothing.

        Raises UserError if the run's directory is not here, or the `versions` are not those that are expected.
        """
        if differences := describe_differences(expected, versions()):
            raise UserError(
                f"the node {node_address()} ({platform.node()}) has {differences}: all nodes need the same versions."
            )
        try:
            os.chdir(self._directory)
        except OSError as error:
            raise UserError(
                f"the node {node_address()} ({platform.node()}) cannot enter {self._directory} ({error.strerror}), "
                "where the run was started: all nodes must see it under the same path."
            ) from error
        if self._child is None:
            self._children = Children(self._logs, {**self._environment, **variables})
            words = [node_address() if word == ADDRESS else word for word in command]
            self._child = self._children.start(name, [sys.executable, *words[1:]])
        return platform.node(), self._child.pid, node_address()

    def poll(self) -> tuple[End | None, list[str]]:
        """How the program has ended, if it has, and the lines that it has written since the last call. Waits a little
        for either."""
        assert self._child
        deadline, lines = time.monotonic() + POLL_S, self._child.new_lines()
        while not lines and self._child.end is None and time.monotonic() < deadline:
            time.sleep(TICK_S)
            lines = self._child.new_lines()
        end = self._child.end  # look first and read afterwards: what has ended has written its last line
        return end, lines + self._child.new_lines()

    def stop(self) -> End | None:
        """End the program with all that it has started."""
        if self._children and self._child:
            self._child.stop()
            self._children.__exit__(None, None, None)
        return self._child.end if self._child else None


def node_address() -> str:
    """The address by which other nodes reach this one."""
    import ray

    return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]


@cache
def versions() -> dict[str, str]:
    """What has to be the same on all nodes: slimrl's own code, Python, and the packages that compute."""
    return {"slimrl": _code_digest(), "python": platform.python_version(), **{name: _version(name) for name in ALIKE}}


def describe_differences(own: Mapping[str, str], others: Mapping[str, str]) -> str:
    """Where two nodes differ, in words; empty if they do not.

    >>> describe_differences({"torch": "2.13.0", "python": "3.11.7"}, {"torch": "2.14.0", "python": "3.11.7"})
    'torch 2.14.0 in place of 2.13.0'
    """
    differing = [name for name in own if own[name] != others.get(name)]
    return ", ".join(f"{name} {others.get(name, 'missing')} in place of {own[name]}" for name in differing)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def _code_digest() -> str:
    """A digest of the Python files of slimrl and its plug-ins, since a checkout keeps its version when it changes."""
    digest = hashlib.sha256()
    for name in sorted(PACKAGES):
        if (spec := find_spec(name)) and spec.origin:
            root = Path(spec.origin).parent
            for path in sorted(root.rglob("*.py")):
                digest.update(f"{name}/{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]
