"""The learning claim of the README: the reverse_text recipe on several seeds, with held-out evaluation and intervals.

`uv run python benchmarks/reverse_text.py`: trains the seeds one after the other (about eleven minutes each on two
cores; finished ones in `--runs` are not run again), copies their curves to `benchmarks/results/reverse_text/`, and
draws `docs/reverse_text.png`.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from slimrl.monitor.plots import plot_runs
from slimrl.monitor.rollouts import read_rollouts

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "reverse_text"
STAGES = ("base", "start", "final")
KEPT = ("metrics.jsonl", "summary.json", *(f"held_out/{stage}.json" for stage in STAGES))


def train(seed: int, output_dir: Path) -> None:
    """One run of the recipe; a finished one is left as it is."""
    if (output_dir / "summary.json").exists():
        return
    recipe = str(ROOT / "examples" / "reverse_text" / "rl.toml")
    command = [sys.executable, "-m", "slimrl", "rl", "@", recipe, "--seed", str(seed), "--output_dir", str(output_dir)]
    subprocess.run(command, check=True)


def outcome(run: Path) -> dict[str, Any]:
    """Held-out reward and exact share before and after RL, and whether the 95% intervals are apart."""
    stages = {stage: json.loads((run / "held_out" / f"{stage}.json").read_text()) for stage in STAGES}
    result: dict[str, Any] = {"minutes": json.loads((run / "summary.json").read_text())["duration_s"] / 60}
    for mode in ("greedy", "sampled"):
        before, after = (stages[stage]["held_out"][mode] for stage in ("start", "final"))
        result[mode] = {
            "base": stages["base"]["held_out"][mode],
            "after_warmup": before,
            "after_rl": after,
            "rise": after["mean"] - before["mean"],
            "intervals_apart": after["low"] > before["high"],
            "exact": [stages[stage]["metrics"][f"held_out/exact_{mode}"] for stage in STAGES],
        }
    return result


def by_length(run: Path) -> dict[str, dict[str, float]]:
    """Greedy held-out reward and exact share before and after RL, by the length of the text."""
    table: dict[str, dict[str, float]] = {}
    for stage in ("start", "final"):
        rollouts = [record.rollout for record in read_rollouts(run / "held_out" / f"{stage}_greedy.jsonl")]
        for length in sorted({len(rollout.task_id.partition("/")[2]) for rollout in rollouts}):
            some = [rollout for rollout in rollouts if len(rollout.task_id.partition("/")[2]) == length]
            row = table.setdefault(str(length), {"num": len(some)})
            row[f"reward_{stage}"] = round(sum(rollout.reward for rollout in some) / len(some), 3)
            row[f"exact_{stage}"] = round(sum(rollout.metrics["exact"] for rollout in some) / len(some), 3)
    return table


def examples(run: Path, num: int) -> list[dict[str, str | float]]:
    """The first held-out texts and the greedy answers to them before and after RL: the first, not the best."""
    stages = [read_rollouts(run / "held_out" / f"{stage}_greedy.jsonl")[:num] for stage in ("start", "final")]
    return [
        {
            "text": before.rollout.task_id.partition("/")[2],
            "before": before.rollout.messages[-1]["content"],
            "reward_before": round(before.rollout.reward, 3),
            "after": after.rollout.messages[-1]["content"],
            "reward_after": round(after.rollout.reward, 3),
        }
        for before, after in zip(*stages, strict=True)
    ]


def keep(run: Path, target: Path) -> None:
    """Copy what the claim rests on, without this machine's paths."""
    for name in KEPT:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(run / name, target / name)
    summary = target / "summary.json"
    summary.write_text(summary.read_text().replace(f"{run.parent}/", "outputs/").replace(f"{ROOT}/", ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=Path("outputs/reverse_text_seeds"), help="where the runs go")
    arguments = parser.parse_args()
    runs = {seed: arguments.runs / f"seed_{seed}" for seed in arguments.seeds}
    for seed, run in runs.items():
        train(seed, run)
        keep(run, RESULTS / run.name)
    table = {run.name: outcome(run) | {"by_length": by_length(run)} for run in runs.values()}
    (RESULTS / "examples.json").write_text(json.dumps(examples(runs[arguments.seeds[0]], 10), indent=1) + "\n")
    (RESULTS / "outcome.json").write_text(json.dumps(table, indent=1) + "\n")
    title = f"SmolLM2-135M learns to reverse text on 2 CPU cores, {len(runs)} seeds"
    plot_runs([RESULTS / run.name for run in runs.values()], ROOT / "docs" / "reverse_text.png", title)
    for name, result in table.items():
        for mode in ("greedy", "sampled"):
            row = result[mode]
            means = " -> ".join(f"{row[stage]['mean']:.3f}" for stage in ("base", "after_warmup", "after_rl"))
            exact = " -> ".join(f"{value:.2f}" for value in row["exact"])
            print(f"{name} {mode:>7}: {means}  rise {row['rise']:.3f}  exact {exact}  {result['minutes']:.1f} min")


if __name__ == "__main__":
    main()
