"""What does activation checkpointing save, and what does it cost? One process, one long sample a step.

`uv run python -m benchmarks.speed.recompute`: steps of a random Llama of 24 layers, with and without. It
writes `benchmarks/results/recompute.json`.
"""

import argparse
import tempfile
from pathlib import Path

from benchmarks.harness.measure import RESULTS, machine_facts, markdown_table, write_result
from benchmarks.speed.sharding import run

SIDES = {"kept": (), "recomputed": ("--activation-checkpointing",)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=3)
    arguments = parser.parse_args()
    machine = machine_facts()
    work = ("--layers", "24", "--num-samples", "1", "--seq-len", str(arguments.tokens), "--steps", str(arguments.steps))
    with tempfile.TemporaryDirectory() as name:
        sides = {side: run(1, [*work, *option], Path(name) / "report") for side, option in SIDES.items()}
    rows = [[side, f"{report['peak_mb']:.0f}", f"{report['step_s']:.2f}"] for side, report in sides.items()]
    print(markdown_table([f"activations of {arguments.tokens} tokens", "peak MB", "s/step"], rows))
    content = {"tokens": arguments.tokens, "steps": arguments.steps, "sides": sides}
    write_result(RESULTS / "recompute.json", machine, content, {})


if __name__ == "__main__":
    main()
