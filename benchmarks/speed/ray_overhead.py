"""What does Ray cost on one host? The same run, its parts started as children and by Ray, and in one process.

    python -m benchmarks.speed.ray_overhead                     three rounds of 20 steps: half an hour on two cores
    python -m benchmarks.speed.ray_overhead --rounds 1 --steps 10

The recipe of reverse_text from one warm-up, at level 0, with one sampler and one trainer. The placements take turns, so
that a change of the machine's load meets all of them; seconds of a step are medians after the first `--skip`, and the
start is the time from the command to the end of its first step. Writes `benchmarks/results/ray_overhead.json`.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.harness.measure import RESULTS, ROOT, machine_facts, markdown_table, write_result
from benchmarks.harness.runs import drop_weights, flags
from benchmarks.harness.warmup import warm_up
from slimrl.launch.run_dir import METRICS
from slimrl.monitor.sinks import read_metrics

PLACEMENTS: dict[str, dict[str, Any]] = {
    "one process": {"deployment.type": "one-process"},
    "processes": {"deployment.type": "processes"},
    "Ray": {"deployment.type": "ray", "deployment.address": "local", "deployment.cpus": 0.5},
}


def run(name: str, number: int, weights: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """The seconds of each step of a run, and until its first one was trained."""
    directory: Path = arguments.runs / f"{name.replace(' ', '_').lower()}_{number}"
    shutil.rmtree(directory, ignore_errors=True)
    settings = {
        "output_dir": directory,
        "max_steps": arguments.steps,
        "max_async_level": 0,
        "model.name": weights,
        "model.num_threads": arguments.threads,
        "warmup.max_steps": 0,
        "eval.num_examples": 1,
        "ckpt.interval_steps": 0,
        **PLACEMENTS[name],
    }
    words = ["rl", "@", str(ROOT / "examples/reverse_text/rl.toml"), *flags(settings)]
    began, first = time.monotonic(), 0.0
    with (arguments.runs / "last.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "slimrl", *words], stdout=log, stderr=log)
        while process.poll() is None:
            time.sleep(0.05)
            if not first and (directory / METRICS).exists() and step_seconds(directory):
                first = time.monotonic() - began
    if process.returncode:
        raise SystemExit(f"the run has ended with {process.returncode}; see {arguments.runs / 'last.log'}")
    seconds = step_seconds(directory)[arguments.skip :]
    drop_weights(directory)
    return {"step_s": statistics.median(seconds), "start_s": first, "in_all_s": time.monotonic() - began}


def step_seconds(directory: Path) -> list[float]:
    """The seconds of each step that a run has logged."""
    return [line["time/step_s"] for _, line in read_metrics(directory / METRICS) if "time/step_s" in line]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--skip", type=int, default=3, help="steps at the start that are not timed")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--threads", default="auto", help="of each part")
    parser.add_argument("--runs", type=Path, default=Path("outputs/ray_overhead"), help="where the runs go")
    arguments = parser.parse_args()
    machine, weights = machine_facts(), warm_up(arguments).resolve()
    measured: dict[str, list[dict[str, Any]]] = {name: [] for name in PLACEMENTS}
    for number in range(arguments.rounds):
        for name in PLACEMENTS:
            measured[name].append(run(name, number, weights, arguments))
            print(name, measured[name][-1], flush=True)
    medians = {
        name: {key: statistics.median(one[key] for one in some) for key in some[0]} for name, some in measured.items()
    }
    base = medians["processes"]["step_s"]
    rows = [
        [name, f"{one['step_s']:.2f}", f"{one['step_s'] / base:.3f}", f"{one['start_s']:.0f}", f"{one['in_all_s']:.0f}"]
        for name, one in medians.items()
    ]
    print(
        markdown_table(["placement", "a step, s", "of that as processes", "until the first step, s", "in all, s"], rows)
    )
    settings = {name: vars(arguments)[name] for name in ("rounds", "steps", "skip", "threads")}
    content = {"settings": settings, "medians": medians, "runs": measured}
    write_result(RESULTS / "ray_overhead.json", machine, content, {str(arguments.runs): "RUNS"})


if __name__ == "__main__":
    main()
