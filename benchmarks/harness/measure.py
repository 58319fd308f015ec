"""How the benchmarks measure: sides in processes of their own, in turn, several times; medians; a table; a JSON file.

A side is a command that takes `--output FILE` and writes what it measured there as JSON, its report. Before each of
them the machine itself is measured, with the side's own PyTorch (`roofline.py`). Knows nothing of what is compared, and
computes nothing itself: two processes that compute at once would disturb each other.
"""

import argparse
import datetime
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
BUSY = 0.5  # load average above which somebody else is computing too
Report = dict[str, Any]  # what a side wrote
Runs = dict[str, dict[str, list[Report]]]  # dtype -> side -> a report for each repetition


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison. `command` begins with a Python interpreter that has PyTorch, gets `--output FILE`
    appended, and runs in `environment` besides its own."""

    name: str
    dtype: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def common_arguments(description: str, result: str, repetitions: int) -> argparse.ArgumentParser:
    """The options that all benchmarks share; `result` is the name of the JSON file."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="model, as slimrl's model.name")
    parser.add_argument("--dtype", nargs="+", choices=["bfloat16", "float32"], default=["bfloat16", "float32"])
    parser.add_argument(
        "--repetitions", type=int, default=repetitions, help="processes of each side, the sides in turn"
    )
    parser.add_argument("--threads", type=int, default=len(cores()), help="threads of each side; all cores by default")
    parser.add_argument("--output", type=Path, default=RESULTS / result)
    return parser


def add_device(parser: argparse.ArgumentParser) -> None:
    """The option of a benchmark whose sides can run on a GPU; its result file should then be another one."""
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where all sides compute")


def cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else list(range(os.cpu_count() or 1))


def alternate(sides: Sequence[Side], repetitions: int, threads: int, device: str = "cpu") -> Runs:
    """Run the sides in turn, `repetitions` times over. Each report gets the speed of the `device` just before,
    `machine`."""
    if (load := os.getloadavg()[0]) > BUSY:
        print(f"Load average is {load:.1f}: others are computing, the times will mislead.", flush=True)
    runs: Runs = {}
    for repetition in range(repetitions):
        for side in sides:
            # By the side's own interpreter: builds of PyTorch may differ in what they make of the same processor.
            probe = [side.command[0], "-m", "benchmarks.harness.roofline", "--device", device]
            machine = run_side(Side("machine", "", probe), threads)
            report = run_side(side, threads) | {"machine": machine}
            runs.setdefault(side.dtype, {}).setdefault(side.name, []).append(report)
            speed = f"{machine[f'{side.dtype}_gflops']:.0f} GFLOP/s, {machine['memory_gb_per_s']:.0f} GB/s before it"
            print(
                f"repetition {repetition + 1} of {repetitions}, {side.dtype}, {side.name}: done ({speed})", flush=True
            )
    return runs


def side_command(python: str, name: str) -> list[str]:
    """The command that starts `benchmarks/sides/NAME.py` with an interpreter, possibly of another environment."""
    return [python, "-m", f"benchmarks.sides.{name}"]


def run_side(side: Side, threads: int) -> Report:
    """Run one side to its end and read what it measured. Its own output is shown only if it fails."""
    # The interpreter may be that of an environment in which this project is not installed.
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    common = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(threads), "PYTHONPATH": path}
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / "report.json"
        result = subprocess.run(
            [*side.command, "--output", str(output)],
            env={**os.environ, **common, **side.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if result.returncode:
            sys.exit(f"{result.stdout}\n{shlex.join(side.command)} failed with status {result.returncode}")
        report: Report = json.loads(output.read_text(encoding="utf-8"))
    return report


def roofline(runs: Runs) -> dict[str, Any]:
    """The machine's speed: the best that was measured in the run, by whichever side's PyTorch."""
    machines = [report["machine"] for sides in runs.values() for reports in sides.values() for report in reports]
    return {name: max(machine[name] for machine in machines) for name in machines[0]}


def all_timings(reports: Iterable[Report], key: str) -> list[float]:
    """All timings under `key`, of all repetitions."""
    return [value for report in reports for value in report[key]]


def median(values: Iterable[float], digits: int = 3) -> float:
    """The median, rounded."""
    return round(statistics.median(values), digits)


def machine_facts() -> dict[str, Any]:
    """What the times depend on. Every run's own report adds library versions."""
    models = [line.partition(":")[2].strip() for line in _cpu_info() if line.startswith("model name")]
    flags = next((line.partition(":")[2].split() for line in _cpu_info() if line.startswith("flags")), [])
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": len(cores()),
        "bfloat16_instructions": sorted({"avx512_bf16", "amx_bf16"} & set(flags)),
        "python": platform.python_version(),
        "load_average_before": round(os.getloadavg()[0], 2),
    }


def _cpu_info() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def public_command(private: Mapping[str, str]) -> str:
    """The command line to publish. `private` maps paths of this machine, such as a peer's interpreter, to what is shown
    in their place."""
    module = ".".join(Path(sys.argv[0]).resolve().relative_to(ROOT).with_suffix("").parts)
    return shlex.join(["python", "-m", module, *(private.get(word, word) for word in sys.argv[1:])])


def write_result(path: Path, facts: Mapping[str, Any], content: Mapping[str, Any], private: Mapping[str, str]) -> None:
    """The JSON file of a run: `facts` are `machine_facts()` from before it, `content` what was measured."""
    result = {
        "date": datetime.date.today().isoformat(),
        "command": public_command({**private, str(path): path.name}),
        "machine": dict(facts),
        **content,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"\nwritten to {path}")


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table for the terminal and for the README."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
