"""What does Ray cost on one host? The same run, its parts started as children and by Ray, and in one process.

    python -m benchmarks.speed.ray_overhead                     three rounds of 20 steps: half an hour on two cores
    python -m benchmarks.speed.ray_overhead --rounds 1 --steps 10

The recipe of reverse_text from one warm-up, at level 0, with one sampler and one trainer. The placements take turns, so
that a change of the machine's load meets all of them; seconds of a step are medians after the first `--skip`, and the
start is the time from the command to the end of its first step. As these vary from one round to the next, what watches
the parts is counted besides: the CPU seconds for each step of `rl` itself, and of Ray's processes. Writes
`benchmarks/results/ray_overhead.json`.
"""

import argparse
import os
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
from slimrl.io.process_tree import find_process_tree, start_time
from slimrl.io.run_dir import RunDir
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
    began, first, around, last = time.monotonic(), 0.0, Around(), 0
    with (arguments.runs / "last.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "slimrl", *words], stdout=log, stderr=log)
        while process.poll() is None:
            time.sleep(0.05)
            num = len(step_seconds(directory)) if RunDir(directory).metrics.exists() else 0
            if num and not first:
                first = time.monotonic() - began
            if num > last:
                last = num
                around.look(process.pid)
    if process.returncode:
        raise SystemExit(f"the run has ended with {process.returncode}; see {arguments.runs / 'last.log'}")
    seconds = step_seconds(directory)[arguments.skip :]
    drop_weights(directory)
    return {
        "step_s": statistics.median(seconds),
        "start_s": first,
        "in_all_s": time.monotonic() - began,
        "around_cpu_s": around.seconds / max(1, last - 1),
    }


class Around:
    """Adds up the CPU seconds of a run's processes that are none of its parts, from the first look on."""

    def __init__(self) -> None:
        self._first: dict[int, float] = {}
        self._last: dict[int, float] = {}
        self._has_looked = False

    def look(self, pid: int) -> None:
        """Look at the descendants of the process of `rl`, and at that."""
        found = {one: cpu_seconds(one) for one in find_process_tree({pid: start_time(pid)}) if not is_part(one)}
        if not self._has_looked:
            self._first, self._has_looked = found, True
        self._last |= found

    @property
    def seconds(self) -> float:
        """The seconds between the first look and the last."""
        return sum(seconds - self._first.get(pid, 0.0) for pid, seconds in self._last.items())


def is_part(pid: int) -> bool:
    """Whether a process is a part of a run, or helps one."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return False
    return bool({"inference", "orchestrator", "trainer"} & set(words))


def cpu_seconds(pid: int) -> float:
    """The CPU seconds that a process has used; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def step_seconds(directory: Path) -> list[float]:
    """The seconds of each step that a run has logged."""
    return [line["time/step_s"] for _, line in read_metrics(RunDir(directory).metrics) if "time/step_s" in line]


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
        [
            name,
            f"{one['step_s']:.2f}",
            f"{one['step_s'] / base:.3f}",
            f"{one['around_cpu_s']:.2f}" if name != "one process" else "",
            f"{one['start_s']:.0f}",
            f"{one['in_all_s']:.0f}",
        ]
        for name, one in medians.items()
    ]
    titles = "placement", "a step, s", "of that as processes", "CPU s around it", "until the first step, s", "in all, s"
    print(markdown_table(titles, rows))
    settings = {name: vars(arguments)[name] for name in ("rounds", "steps", "skip", "threads")}
    content = {"settings": settings, "medians": medians, "runs": measured}
    write_result(RESULTS / "ray_overhead.json", machine, content, {str(arguments.runs): "RUNS"})


if __name__ == "__main__":
    main()
