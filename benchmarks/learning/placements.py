"""Does one configuration learn the same in one process, as processes, with two trainer ranks, and sampled by vLLM?

    python -m benchmarks.learning.placements --vllm ~/vllm/bin/vllm

The recipe of reverse_text with one seed and `max_async_level` 0, in each placement in turn: rewards step by step,
`guard/mismatch_kl`, held-out results with their intervals, how many greedy replies of the base model and of the warmed
model are the same as in one process, and how long it takes to the first metric. Writes
`benchmarks/results/placements.json`; without `--vllm` that placement is left out.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.measure import RESULTS, ROOT, machine_facts, markdown_table, write_result
from benchmarks.harness.runs import flags
from slimrl.eval.episodes import past_episodes
from slimrl.monitor.sinks import read_metrics

APART = {"deployment.type": "processes"}
BASE, START = "base_greedy", "start_greedy"


def placements(vllm: str) -> dict[str, dict[str, Any]]:
    """The settings of each placement."""
    found: dict[str, dict[str, Any]] = {
        "one process": {"deployment.type": "one-process"},
        "processes": APART,
        "processes, two trainer ranks": {**APART, "deployment.num_trainers": 2},
    }
    if vllm:
        by_vllm = {**APART, "inference.backend": "vllm", "inference.vllm_program": vllm}
        found["processes, vLLM"] = by_vllm
    return found


def run(directory: Path, settings: dict[str, Any], arguments: argparse.Namespace) -> dict[str, float]:
    """Make the run, and say how many seconds it took to its first metrics and to its end."""
    shared = {"output_dir": directory, "max_steps": arguments.steps, "seed": arguments.seed, "max_async_level": 0}
    shared |= {"eval.num_examples": arguments.num_examples, "ckpt.interval_steps": 0, "model.dtype": arguments.dtype}
    recipe = str(ROOT / "examples" / "reverse_text" / "rl.toml")
    words = ["@", recipe, *flags({**shared, **settings})]
    began, first = time.monotonic(), {}
    waits = {"first_held_out_s": directory / "held_out" / "base.json", "first_rl_step_s": directory / "metrics.jsonl"}
    with (
        directory.with_suffix(".log").open("wb") as log,
        subprocess.Popen([sys.executable, "-m", "slimrl", "rl", *words], stdout=log, stderr=log) as process,
    ):
        while process.poll() is None:
            for name, path in waits.items():
                if name not in first and path.exists() and path.stat().st_size:
                    first[name] = round(time.monotonic() - began, 1)
            time.sleep(0.1)
    if process.returncode:
        raise SystemExit(f"{directory} ended with status {process.returncode}; see {directory.with_suffix('.log')}")
    return first | {"whole_s": round(time.monotonic() - began, 1)}


def measure(directory: Path) -> dict[str, Any]:
    """What the run's files say of what was learned, step by step and in the end."""
    lines = [metrics for _, metrics in read_metrics(directory / "metrics.jsonl")]
    steps = [metrics for metrics in lines if "time/step_s" in metrics]
    stages = json.loads((directory / "summary.json").read_text())["stages"]
    return {
        "rewards": [round(one["reward/mean"], 4) for one in steps],
        "mismatch_kl": [one["guard/mismatch_kl"] for one in steps],
        "step_s": statistics.median(one["time/step_s"] for one in steps),
        "held_out": {stage["name"]: stage["held_out"] for stage in stages},
    }


def same_replies(one: Path, other: Path, stage: str) -> str:
    """How many of a stage's greedy episodes have the same tokens in both runs."""
    here, there = (past_episodes(path / "held_out" / f"{stage}.jsonl") for path in (one, other))
    same = sum(here[task].token_ids_T == there[task].token_ids_T for task in here)
    return f"{same} of {len(here)}"


def estimate(found: dict[str, Any]) -> str:
    return f"{found['mean']:.3f} ({found['low']:.3f} to {found['high']:.3f})"


def table(found: dict[str, dict[str, Any]]) -> str:
    head = ["placement", "held-out greedy, after warm-up", "after RL", "sampled, after RL", "largest mismatch_kl"]
    head += ["same greedy replies, base", "after warm-up", "first held-out, s", "a step, s", "in all, s"]
    rows = []
    for name, one in found.items():
        stages = list(one["held_out"].values())
        row = [name, estimate(stages[1]["greedy"]), estimate(stages[-1]["greedy"]), estimate(stages[-1]["sampled"])]
        row += [f"{max(one['mismatch_kl']):.1e}", one["same_base"], one["same_start"]]
        rows.append([*row, f"{one['first_held_out_s']:.0f}", f"{one['step_s']:.1f}", f"{one['whole_s']:.0f}"])
    return markdown_table(head, rows)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--num-examples", type=int, default=200, help="held-out tasks")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--vllm", default="", help="vLLM's program; empty leaves it out")
    parser.add_argument("--only", nargs="+", help="these placements, of which the first is one process")
    parser.add_argument("--runs", type=Path, default=Path("outputs/placements"), help="where the runs go")
    arguments = parser.parse_args(argv)
    machine, found = machine_facts(), {}
    arguments.runs.mkdir(parents=True)
    alone = arguments.runs / "one_process"
    chosen = {name: one for name, one in placements(arguments.vllm).items() if name in (arguments.only or [name])}
    for name, settings in chosen.items():
        directory = arguments.runs / name.replace(",", "").replace(" ", "_")
        found[name] = run(directory, settings, arguments) | measure(directory)
        found[name] |= {f"same_{stage.split('_')[0]}": same_replies(alone, directory, stage) for stage in (BASE, START)}
        print(table(found), flush=True)
    content = {name: vars(arguments)[name] for name in ("steps", "seed", "num_examples", "dtype")}
    private = {str(arguments.runs): "RUNS", arguments.vllm or "-": "VLLM"}
    write_result(RESULTS / "placements.json", machine, content | {"placements": found}, private)


if __name__ == "__main__":
    main()
