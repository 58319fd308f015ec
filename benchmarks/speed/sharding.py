"""What does a trainer's process hold when several share a model, and do they learn the same as one?

`uv run python -m benchmarks.speed.sharding`: 20 steps of a random Llama of 13 million parameters on made-up samples in
1, 2 and 4 processes (FSDP2 over gloo), with all weights and with adapters. Writes `benchmarks/results/sharding.json`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness.measure import RESULTS, Report, machine_facts, markdown_table, write_result

SIDE = ("-m", "benchmarks.sides.sharded_trainer")
ADAPTERS = {"all weights": (), "LoRA, rank 8": ("--lora-rank", "8")}


def run(num: int, options: Sequence[str], output: Path) -> Report:
    """What `num` processes report; they may take ten minutes."""
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num)) if num > 1 else ()
    command = [sys.executable, *torchrun, *SIDE, *options, "--output", str(output)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    subprocess.run(command, check=True, timeout=600, env=environment)
    report: Report = json.loads(output.read_text())
    return report


def difference(found: Path, expected: Path) -> float:
    """The greatest difference of a trained tensor, divided by the greatest number in it."""
    pairs = [(torch.load(path, weights_only=True)) for path in (found, expected)]
    return max(float((pairs[0][n] - t).abs().max() / t.abs().max().clamp_min(1e-30)) for n, t in pairs[1].items())


def shared(directory: Path, steps: int) -> list[dict[str, Any]]:
    """A row for each number of processes, with all weights and with adapters."""
    rows = []
    for name, options in ADAPTERS.items():
        for num in (1, 2, 4):
            weights = directory / f"{name}_{num}.pt"
            report = run(num, [*options, "--steps", str(steps), "--weights", str(weights)], directory / "report")
            gap = difference(weights, directory / f"{name}_1.pt")
            rows.append({"trained": name, "ranks": num, **report, "max_relative_difference": gap})
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    machine = machine_facts()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        rows = shared(directory, arguments.steps)
    heads = ["trained", "ranks", "bytes held a parameter", "peak MB a rank", "s/step", "difference from one process"]
    cells = [
        [
            row["trained"],
            str(row["ranks"]),
            f"{row['held_bytes_per_parameter']:.2f}",
            f"{row['peak_mb']:.0f}",
            f"{row['step_s']:.2f}",
            f"{row['max_relative_difference']:.1e}",
        ]
        for row in rows
    ]
    print(markdown_table(heads, cells))
    result = {"steps": arguments.steps, "shared": rows}
    write_result(RESULTS / "sharding.json", machine, result, {})


if __name__ == "__main__":
    main()
