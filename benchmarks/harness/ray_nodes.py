"""A Ray cluster of several node processes on this machine, each at a loopback address of its own.

It lives in a process of its own: `python -m benchmarks.harness.ray_nodes NUM` prints the cluster's address, and takes
the lines `kill K`, `add K` and `end`.
"""

import os
import re
import subprocess
import sys
from types import TracebackType
from typing import Any, Self

MEMORY = 80_000_000  # for a node's object store, in bytes: parts of a run meet in files


class Nodes:
    """The nodes of a cluster, by numbers from 1, as a context. Node K is at 127.0.0.(K + 2)."""

    def __init__(self, num: int) -> None:
        command = [sys.executable, "-m", "benchmarks.harness.ray_nodes", str(num)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = self._read_address()

    def kill(self, number: int) -> None:
        """End a node as a power cut would."""
        self._do(f"kill {number}")

    def add(self, number: int) -> None:
        """Start one more node."""
        self._do(f"add {number}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.communicate("end\n", timeout=60)

    def _do(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def _read_address(self) -> str:
        assert self._process.stdout
        for line in self._process.stdout:
            if re.fullmatch(r"[\d.]+:\d+\n", line):
                return line.strip()
        self._process.communicate()
        raise SystemExit("the Ray cluster has not started; what stands above says why.")


def main(num: int) -> None:
    """Start a head, which runs nothing itself, and so many nodes; then do what the lines of standard input say."""
    os.environ |= {"RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    from ray.cluster_utils import Cluster

    def place(number: int) -> dict[str, Any]:
        # Not 127.0.0.1, for which Ray takes the machine's own address.
        return {"node_ip_address": f"127.0.0.{2 + number}", "object_store_memory": MEMORY}

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **place(0)})
    nodes = {number: cluster.add_node(num_cpus=2, **place(number)) for number in range(1, num + 1)}
    print(cluster.address, flush=True)
    for line in sys.stdin:
        match line.split():
            case ["kill", number]:
                cluster.remove_node(nodes.pop(int(number)), allow_graceful=False)
            case ["add", number]:
                nodes[int(number)] = cluster.add_node(num_cpus=2, **place(int(number)))
            case _:
                break
    cluster.shutdown()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main(int(sys.argv[1]))
