"""One RL step at equal work: slimrl against TRL's `GRPOTrainer`, on the CPU, in one run on one machine.

A step: 32 rollouts (4 prompts of about 45 tokens x 8) of exactly 64 new tokens, rewards that differ in every group, the
GRPO loss without a reference model, clipping at 1.0, one AdamW step. Each side runs in a process of its own, the two in
turn, each with one warm-up step first; what is reported is the median over all timed steps.

    python benchmarks/rl_step.py --trl-python TRL_ENVIRONMENT/bin/python

benchmarks/README.md says how to make that environment. Without it only our side is measured.
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
from pathlib import Path
from typing import Any

from slimrl.config.train import TrainerConfig
from slimrl.models.resolve import resolve

HERE = Path(__file__).parent
RESULTS = HERE / "results"
BUSY = 0.5  # load average above which somebody else is computing too
Report = dict[str, Any]  # a `step_work.SideReport` as JSON


def main() -> None:
    arguments = parse_arguments()
    model = resolve(arguments.model)
    facts = machine_facts()
    if facts["load_average_before"] > BUSY:
        print(f"Load average is {facts['load_average_before']:.1f}: others are computing, the times will mislead.")
    runs: dict[str, dict[str, list[Report]]] = {dtype: {} for dtype in arguments.dtype}
    for repetition in range(arguments.repetitions):
        for dtype in arguments.dtype:
            for side, command in commands(arguments, dtype).items():
                report = run_side([*command, "--model", str(model), "--dtype", dtype, "--steps", str(arguments.steps)])
                runs[dtype].setdefault(side, []).append(report)
                median = statistics.median(report["step_s"])
                print(f"repetition {repetition + 1}, {dtype}, {side}: {median:.2f} s a step", flush=True)
    table = "\n".join([TABLE_HEAD, *(line for dtype in runs for line in table_lines(dtype, runs[dtype]))])
    content = {
        "date": datetime.date.today().isoformat(),
        "command": shown_command(arguments.trl_python),
        "machine": facts,
        "summary": {dtype: summary(runs[dtype]) for dtype in runs},
        "runs": runs,
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"\n{table}\n\nwritten to {arguments.output}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl-python", default="", help="interpreter of an environment that has TRL")
    parser.add_argument("--model", default="smollm2-135m", help="model, as slimrl's model.name")
    parser.add_argument("--dtype", nargs="+", choices=["bfloat16", "float32"], default=["bfloat16", "float32"])
    parser.add_argument("--repetitions", type=int, default=3, help="processes of each side, the sides in turn")
    parser.add_argument("--steps", type=int, default=3, help="timed steps of each process")
    parser.add_argument(
        "--micro-batch-tokens",
        type=int,
        default=TrainerConfig().micro_batch_tokens,
        help="tokens in one of our backward passes; our default holds the whole batch",
    )
    parser.add_argument("--trl-micro-batch", type=int, default=8, help="rollouts in one of TRL's backward passes")
    parser.add_argument(
        "--trl-weights",
        choices=["same", "float32"],
        default="same",
        help="what TRL keeps the weights in: the --dtype, or float32 under autocast (as precise as ours)",
    )
    parser.add_argument("--output", type=Path, default=RESULTS / "rl_step.json")
    return parser.parse_args()


def commands(arguments: argparse.Namespace, dtype: str) -> dict[str, list[str]]:
    """The command of each side to measure."""
    ours = [sys.executable, str(HERE / "ours_step.py"), "--micro-batch-tokens", str(arguments.micro_batch_tokens)]
    found = {"slimrl": ours}
    if arguments.trl_python:
        weights = dtype if arguments.trl_weights == "same" else arguments.trl_weights
        options = ["--weights", weights, "--micro-batch", str(arguments.trl_micro_batch)]
        found["TRL"] = [arguments.trl_python, str(HERE / "trl_step.py"), *options]
    return found


def run_side(command: list[str]) -> Report:
    """Run one side to its end and read what it measured. Its own output is shown only if it fails."""
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / "report.json"
        result = subprocess.run(
            [*command, "--output", str(output)],
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if result.returncode:
            sys.exit(f"{result.stdout}\n{shlex.join(command)} failed with status {result.returncode}")
        report: Report = json.loads(output.read_text(encoding="utf-8"))
    return report


def summary(sides: dict[str, list[Report]]) -> dict[str, Any]:
    """Medians of each side, and how many times longer TRL's step takes: over all, and repetition by repetition."""
    prompts = {tuple(report["prompt_tokens"]) for reports in sides.values() for report in reports}
    assert len(prompts) == 1, f"the sides did not see the same prompts: {prompts}"
    result: dict[str, Any] = {side: side_summary(reports) for side, reports in sides.items()}
    if "TRL" in sides:
        result["ratio"] = round(result["TRL"]["step_s"] / result["slimrl"]["step_s"], 2)
        medians = {side: [statistics.median(r["step_s"]) for r in reports] for side, reports in sides.items()}
        pairs = zip(medians["TRL"], medians["slimrl"], strict=True)
        result["ratio_by_repetition"] = [round(theirs / ours, 2) for theirs, ours in pairs]
    return result


def side_summary(reports: list[Report]) -> dict[str, float]:
    """Medians over all timed steps, their range, and the largest peak memory of a process."""
    times = {key: [s for report in reports for s in report[key]] for key in ("step_s", "rollout_s", "train_s")}
    return {
        **{key: round(statistics.median(values), 3) for key, values in times.items()},
        "step_s_min": round(min(times["step_s"]), 3),
        "step_s_max": round(max(times["step_s"]), 3),
        "peak_memory_gb": round(max(report["peak_memory_gb"] for report in reports), 2),
        "gflops_float32": statistics.median(report["gflops"]["float32"] for report in reports),
        "gflops_bfloat16": statistics.median(report["gflops"]["bfloat16"] for report in reports),
    }


TABLE_HEAD = """\
| dtype | side | step s (range) | rollout s | train s | peak memory GB | TRL / slimrl |
|---|---|---|---|---|---|---|"""


def table_lines(dtype: str, sides: dict[str, list[Report]]) -> list[str]:
    """One line of the table for each side."""
    numbers = summary(sides)
    lines = []
    for side in sides:
        row = numbers[side]
        steps = f"{row['step_s']:.2f} ({row['step_s_min']:.2f}-{row['step_s_max']:.2f})"
        ratio = f"{numbers['ratio']:.2f}" if side == "slimrl" and "ratio" in numbers else ""
        cells = (dtype, side, steps, f"{row['rollout_s']:.2f}", f"{row['train_s']:.2f}", f"{row['peak_memory_gb']:.1f}")
        lines.append(f"| {' | '.join(cells)} | {ratio} |")
    return lines


def machine_facts() -> dict[str, Any]:
    """What the times depend on. Every run's own report adds library versions and the speed of a matrix product."""
    models = [line.partition(":")[2].strip() for line in cpu_info() if line.startswith("model name")]
    flags = next((line.partition(":")[2].split() for line in cpu_info() if line.startswith("flags")), [])
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "bfloat16_instructions": sorted({"avx512_bf16", "amx_bf16"} & set(flags)),
        "python": platform.python_version(),
        "load_average_before": round(os.getloadavg()[0], 2),
    }


def cpu_info() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def shown_command(trl_python: str) -> str:
    """The command line to publish, without this machine's directory of TRL's environment."""
    line = shlex.join(["python", "benchmarks/rl_step.py", *sys.argv[1:]])
    return line.replace(trl_python, "TRL_ENVIRONMENT/bin/python") if trl_python else line


if __name__ == "__main__":
    main()
