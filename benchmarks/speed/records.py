"""What does it cost a run to write down its rollouts, and the trainer's numbers for each token, for viewers?

Runs the examples for a few steps, with a clock around everything that writes: the texts, the file of rollouts, and
the trainer's numbers. The time of the steps is the run's own.

    python -m benchmarks.speed.records
    python -m benchmarks.speed.records --cases reverse_text --steps 20
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness.measure import RESULTS, ROOT, machine_facts, markdown_table, write_result
from benchmarks.harness.runs import flags
from slimrl.cli import run as run_slimrl
from slimrl.launch import sampling
from slimrl.monitor.rollouts import read_rollouts
from slimrl.monitor.sinks import read_metrics
from slimrl.orchestrator.orchestrator import Orchestrator
from slimrl.trainer.token_log import TokenLog

CASES = ("reverse_text", "alphabet_sort", "wordle")
CLOCKED = (
    (Orchestrator, "_records", "texts"),
    (sampling, "write_rollouts", "rollouts"),
    (TokenLog, "add", "numbers of tokens"),
    (TokenLog, "gather", "numbers of tokens"),
    (TokenLog, "write", "numbers of tokens"),
)
SECONDS = "seconds.json"


def main() -> None:
    if sys.argv[1:2] == ["--clocked"]:  # a run, for the process below
        run_clocked(Path(sys.argv[2]), sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--output", type=Path, default=RESULTS / "records.json")
    arguments = parser.parse_args()
    facts = machine_facts()
    content = {
        "steps": arguments.steps,
        "results": {name: result_of(name, arguments.steps) for name in arguments.cases},
    }
    print(f"\n{table(content)}")
    write_result(arguments.output, facts, content, {})


def result_of(name: str, steps: int) -> dict[str, Any]:
    """What a run of an example wrote, and the seconds that this and all of its steps took."""
    with tempfile.TemporaryDirectory() as directory:
        run = Path(directory) / "run"
        settings: dict[str, Any] = {"max_steps": steps, "eval.num_examples": 16, "ckpt.interval_steps": 0}
        if name != "alphabet_sort":  # which has no warm-up
            settings["warmup.max_steps"] = 4
        words = ["rl", "@", str(ROOT / "examples" / name / "rl.toml"), *flags(settings | {"output_dir": run})]
        program = [sys.executable, "-m", "benchmarks.speed.records", "--clocked", str(Path(directory) / SECONDS)]
        subprocess.run([*program, *words], check=True, cwd=ROOT)
        seconds = json.loads((Path(directory) / SECONDS).read_text(encoding="utf-8"))
        step_s = [
            metrics["time/step_s"] for _, metrics in read_metrics(run / "metrics.jsonl") if "time/step_s" in metrics
        ]
        files = sorted((run / "rollouts").glob("step_*"))
        records = [record for path in files if path.suffix == ".jsonl" for record in read_rollouts(path)]
        return {
            "steps_s": sum(step_s),
            "seconds": seconds,
            "share": sum(seconds.values()) / sum(step_s),
            "rollouts": len(records),
            "tokens": sum(len(record.rollout.token_ids_T) for record in records),
            "bytes": sum(path.stat().st_size for path in files),
        }


def run_clocked(result: Path, words: list[str]) -> None:
    """Run a command of slimrl in this process, and write the seconds that each kind of writing took."""
    seconds: dict[str, float] = defaultdict(float)

    def clocked(function: Callable[..., Any], kind: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                seconds[kind] += time.perf_counter() - began

        return call

    for owner, name, kind in CLOCKED:
        setattr(owner, name, clocked(getattr(owner, name), kind))
    status = run_slimrl(words)
    result.write_text(json.dumps(seconds), encoding="utf-8")
    sys.exit(status)


def table(content: Mapping[str, Any]) -> str:
    """The share of each kind of writing in the time of a run's steps."""
    kinds = list(dict.fromkeys(kind for _, _, kind in CLOCKED))
    rows = []
    for name, result in content["results"].items():
        shares = [f"{result['seconds'].get(kind, 0) / result['steps_s']:.3%}" for kind in kinds]
        size = f"{result['bytes'] / content['steps'] / 1e6:.2f} MB"
        rows.append(
            (name, f"{result['rollouts']:,} of {result['tokens']:,} tokens", size, *shares, f"{result['share']:.2%}")
        )
    return markdown_table(("run", "rollouts", "disk a step", *kinds, "together, of the steps' time"), rows)


if __name__ == "__main__":
    main()
