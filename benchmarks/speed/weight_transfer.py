"""What it takes until a sampler has new weights: by files in a directory, and by broadcast with gloo.

    python -m benchmarks.speed.weight_transfer

The sampler is slimrl's server in a process of its own on the same machine, and idle. The time begins with weights in
the trainer's memory, and ends when the sampler has their version. Files are written, read, and copied; a broadcast is
received and copied.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness.measure import common_arguments, machine_facts, markdown_table, write_result
from slimrl.config.model import ModelConfig
from slimrl.inference.remote_client import RemoteClient
from slimrl.inference.server_link import SamplerAddress
from slimrl.inference.weight_sender import WeightSender
from slimrl.models.load import Policy, load_policy, save_weights

PORT, CONTEXT_LEN, START_S = 8393, 256, 120.0


def main() -> None:
    parser = common_arguments(__doc__ or "", "weight_transfer.json", repetitions=5)
    arguments = parser.parse_args()
    facts, content = machine_facts(), {}
    for dtype in arguments.dtype:
        policy = load_policy(
            ModelConfig(name=arguments.model, device="cpu", dtype=dtype, num_threads=arguments.threads)
        )
        with tempfile.TemporaryDirectory() as directory, sampler(arguments.model, dtype) as client:
            content[dtype] = measure(policy, client, Path(directory), arguments.repetitions)
    rows = [
        [dtype, f"{of['megabytes']:.0f}", *(f"{of[way]['median_s']:.2f}" for way in ("files", "gloo"))]
        for dtype, of in content.items()
    ]
    print(f"\n{markdown_table(('dtype', 'MB', 'files, s', 'gloo, s'), rows)}")
    write_result(arguments.output, facts, {"summary": content}, {})


@contextmanager
def sampler(model: str, dtype: str) -> Iterator[RemoteClient]:
    """A client of a server that runs in a process of its own."""
    command = [sys.executable, "-m", "slimrl", "inference", "--model.name", model, "--model.dtype", dtype]
    command += ["--model.device", "cpu", "--port", str(PORT), "--context_len", str(CONTEXT_LEN), "--max_slots", "4"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    client = RemoteClient(SamplerAddress(f"http://127.0.0.1:{PORT}", timeout_s=START_S), frozenset(), CONTEXT_LEN)
    try:
        client.checksums()  # when it is ready
        yield client
    finally:
        client.close()
        process.terminate()
        process.wait()


def measure(policy: Policy, client: RemoteClient, directory: Path, repetitions: int) -> dict[str, Any]:
    """The times of both ways, in turn."""
    tensors = {name: parameter.detach() for name, parameter in policy.module.named_parameters()}
    versions = iter(range(1, 10**6))
    times: dict[str, list[float]] = {"files": [], "gloo": []}

    def by_files() -> None:
        version = next(versions)
        save_weights(policy, directory / f"{version}")
        client.update_weights(directory / f"{version}", version)

    with WeightSender([client], "127.0.0.1", torch.device("cpu")) as sender:
        ways: dict[str, Callable[[], None]] = {
            "files": by_files,
            "gloo": lambda: sender.send(tensors, next(versions)),
        }
        for _ in range(repetitions):
            for name, way in ways.items():
                began = time.perf_counter()
                way()
                times[name].append(time.perf_counter() - began)
    return {
        "megabytes": sum(tensor.nbytes for tensor in tensors.values()) / 1e6,
        **{
            name: {"median_s": round(statistics.median(all_s), 3), "all_s": [round(one, 3) for one in all_s]}
            for name, all_s in times.items()
        },
    }


if __name__ == "__main__":
    main()
