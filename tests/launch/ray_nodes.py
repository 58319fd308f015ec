"""A Ray cluster of several node processes on this machine, each at a loopback address of its own; a program for tests.

`python -m tests.launch.ray_nodes NUM` prints the cluster's address, and takes the lines `kill K`, `add K` and `end`.
"""

import os
import sys
from typing import Any

MEMORY = 80_000_000  # for a node's object store, in bytes: parts of a run meet in files


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
        print("done", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]))
