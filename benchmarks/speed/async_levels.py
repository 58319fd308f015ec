"""What does it bring to sample ahead of the trainer? `max_async_level` 0, 1 and 2 in one process on one machine.

    python -m benchmarks.speed.async_levels                     three seeds, 40 steps, held-out rewards: hours
    python -m benchmarks.speed.async_levels --steps 10 --seeds 0 --num-examples 0 --skip 3

The recipe of reverse_text, with an environment whose every step takes 2 s (`harness/slow_reverse.py`) and with one that
answers at once. Every run begins from the same warm-up and takes as many steps, so it trains on about as many tokens.
Speeds are of the steps after the first `--skip`, in which the pool fills. Runs of the same settings are not made again.
Writes `benchmarks/results/async_levels.json`.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.measure import RESULTS, ROOT, machine_facts, markdown_table, write_result
from benchmarks.harness.runs import Job, drop_weights, finish, flags
from benchmarks.harness.warmup import warm_up
from slimrl.io.run_dir import RunDir
from slimrl.monitor.sinks import read_metrics
from slimrl.stats import mean_of_few

LEVELS = (0, 1, 2)
DELAYS = (2.0, 0.0)
HELD_OUT = "held_out/reward_greedy", "held_out/reward_sampled"
MEANS = "async/age_mean", "async/sampler_idle", "time/rollout_s", "time/train_s", "guard/mismatch_kl"


def run(level: int, delay_s: float, seed: int, weights: Path, arguments: argparse.Namespace) -> Path:
    """The directory of a finished run."""
    directory: Path = arguments.runs / f"delay_{delay_s:g}_level_{level}_seed_{seed}"
    environment = {
        "id": f"{ROOT / 'benchmarks' / 'harness' / 'slow_reverse.py'}:SlowReverseText",
        "args": {"delay_s": delay_s, "style": "code", "min_length": 4, "max_length": 10},
        "worker": "none",
    }
    settings = {
        "output_dir": directory,
        "max_steps": arguments.steps,
        "max_async_level": level,
        "seed": seed,
        "model.name": weights,
        "model.num_threads": arguments.threads,
        "warmup.max_steps": 0,
        "orchestrator.batch_size": arguments.batch_size,
        "inference.max_slots": arguments.batch_size
        * (1 + max(LEVELS)),  # all that is in flight at once, at every level
        "eval.num_examples": max(1, arguments.num_examples),
        "ckpt.interval_steps": 0,
        "orchestrator.env": json.dumps([environment]),
    }
    finish(Job("rl", ["@", str(ROOT / "examples/reverse_text/rl.toml"), *flags(settings)], directory))
    drop_weights(directory)
    return directory


def measure(directory: Path, skip: int) -> dict[str, Any]:
    """What a run's metrics say of its speed, its ages and what it learned."""
    lines = [line for _, line in read_metrics(RunDir(directory).metrics)]
    steps = [line for line in lines if "time/step_s" in line][skip:]
    seconds = sum(line["time/step_s"] for line in steps)
    ages: dict[str, float] = {}
    for line in steps:
        for name, share in line.items():
            if name.startswith("async/age_") and name.removeprefix("async/age_").isdigit():
                ages[name] = ages.get(name, 0.0) + share / len(steps)
    last = next(line for line in reversed(lines) if HELD_OUT[0] in line)
    return {
        "steps_per_min": 60 * len(steps) / seconds,
        "tokens_trained_per_s": sum(line["loss/tokens"] for line in steps) / seconds,
        "tokens_trained": sum(line["loss/tokens"] for line in lines if "loss/tokens" in line),
        "dropped_stale": sum(line.get("drop/stale", 0.0) for line in lines),
        **{name: statistics.fmean(line[name] for line in steps) for name in MEANS},
        **dict(sorted(ages.items())),
        **{name: last[name] for name in HELD_OUT},
    }


def summary_of(measured: Sequence[dict[str, Any]], with_rewards: bool) -> dict[str, Any]:
    """The means over seeds, and 95% intervals of what was learned."""
    names = dict.fromkeys(name for one in measured for name in one if name not in HELD_OUT)
    summary: dict[str, Any] = {name: statistics.fmean(one.get(name, 0.0) for one in measured) for name in names}
    if with_rewards and len(measured) > 1:
        for name in HELD_OUT:
            estimate = mean_of_few([one[name] for one in measured])
            summary[name] = {"mean": estimate.mean, "low": estimate.low, "high": estimate.high}
    return summary


def table(summaries: dict[str, dict[str, dict[str, Any]]]) -> str:
    """A line for each level with each delay."""
    rows = []
    for delay, levels in summaries.items():
        first = next(iter(levels.values()))["tokens_trained_per_s"]
        for level, one in levels.items():
            numbers = [one["steps_per_min"], one["tokens_trained_per_s"], one["tokens_trained_per_s"] / first]
            numbers += [one["async/age_mean"], one["async/sampler_idle"], one["time/train_s"]]
            rewards = [
                f"{one[n]['mean']:.3f} ({one[n]['low']:.3f} to {one[n]['high']:.3f})" for n in HELD_OUT if n in one
            ]
            rows.append([delay, level, *(f"{number:.2f}" for number in numbers), *(rewards or ["", ""])])
    head = ["step of the environment, s", "level", "steps a minute", "tokens trained a second", "of the first"]
    head += ["mean age", "sampler idle", "training, s", "held-out greedy", "held-out sampled"]
    return markdown_table(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--skip", type=int, default=4, help="steps at the start that are not timed")
    parser.add_argument("--batch-size", type=int, default=64, help="rollouts in a step, in groups of 8")
    parser.add_argument("--levels", type=int, nargs="+", default=LEVELS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--delays", type=float, nargs="+", default=DELAYS, help="seconds of a step of the environment")
    parser.add_argument("--num-examples", type=int, default=200, help="held-out tasks; 0 leaves rewards out")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--threads", default="auto", help="of each run; on a busy machine, 1 is a fairer comparison")
    parser.add_argument("--runs", type=Path, default=Path("outputs/async_levels"), help="where the runs go")
    arguments = parser.parse_args()
    machine, weights = machine_facts(), warm_up(arguments).resolve()
    measured: dict[str, dict[str, list[dict[str, Any]]]] = {}
    # The levels take turns, so that a change of the machine's load meets all of them.
    for seed in arguments.seeds:
        for delay_s in arguments.delays:
            for level in arguments.levels:
                one = measure(run(level, delay_s, seed, weights, arguments), arguments.skip)
                measured.setdefault(f"{delay_s:g}", {}).setdefault(str(level), []).append(one)
    summaries = {
        delay: {level: summary_of(some, arguments.num_examples > 0) for level, some in levels.items()}
        for delay, levels in measured.items()
    }
    print(table(summaries))
    content = {
        name: vars(arguments)[name] for name in ("steps", "skip", "batch_size", "threads", "seeds", "num_examples")
    }
    content["summary"] = summaries
    write_result(RESULTS / "async_levels.json", machine, content | {"runs": measured}, {str(arguments.runs): "RUNS"})


if __name__ == "__main__":
    main()
