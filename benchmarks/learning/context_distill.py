"""The claim of docs/distillation.md: the experiment on several seeds, with student before, teacher, student after.

`uv run python -m benchmarks.learning.context_distill`: for each seed trains `experiments/context_distill/rl.toml`, then
probes the weights that RL began with, which are the teacher's. Writes `benchmarks/results/context_distill/`:
`outcome.json`, `outcome.md`, and what the runs measured; draws `docs/context_distill.png`. Table and picture are of all
seeds that are kept there, so that seeds can be run one by one. Finished runs and probes of the same settings are not
repeated, and interrupted runs go on. Flags behind `--flags` go to both commands."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness.runs import ROOT, SUMMARY, Job, finish
from benchmarks.harness.seed_plots import plot_runs
from benchmarks.harness.seeds import keep, parser
from slimrl.io.run_dir import RunDir, step_directories
from slimrl.monitor.sinks import read_metrics

CONFIG = ROOT / "experiments" / "context_distill" / "rl.toml"
RESULTS = ROOT / "benchmarks" / "results" / "context_distill"
MODES = ("greedy", "sampled")


def train_and_probe(run: Path, seed: int, flags: list[str]) -> None:
    """The run, and beside it the probe of what its student began with."""
    argv = ["@", str(CONFIG), "--seed", str(seed), "--output-dir", str(run), *flags]
    finish(Job("rl", argv, run, cwd=ROOT), resume=True)  # the config names the environment's file from there
    start = ["--model.name", str(initial_weights(run)), "--warmup.max_steps", "0"]
    finish(Job("probe", [*argv, *start], run / "probe", result="probe.json", cwd=ROOT))


def initial_weights(run: Path) -> Path:
    """What the warm-up left."""
    return step_directories(run / "warmup" / "weights")[-1]


def outcome(run: Path) -> dict[str, Any]:
    """Student before, teacher, student after, for each way of decoding, and the share of the gap that was closed; from
    what is kept of a run."""
    probe = json.loads((run / "probe.json").read_text())
    stages = {stage: json.loads((run / "held_out" / f"{stage}.json").read_text()) for stage in ("base", "final")}
    steps = [metrics for _, metrics in read_metrics(RunDir(run).metrics) if "distill/reverse_kl" in metrics]
    result: dict[str, Any] = {
        "minutes": json.loads((run / SUMMARY).read_text())["duration_s"] / 60,
        "steps": len(steps),
        "rollouts": int(sum(metrics["rollout/num"] for metrics in steps)),
        "reverse_kl_first": steps[0]["distill/reverse_kl"],
        "reverse_kl_last": steps[-1]["distill/reverse_kl"],
        "teacher_share_of_time": sum(m["time/teacher_s"] for m in steps) / sum(m["time/step_s"] for m in steps),
    }
    for mode in MODES:
        gap = probe["gaps"][mode]
        after = stages["final"]["held_out"][mode]
        closed = (after["mean"] - gap["student"]["mean"]) / gap["gap"]["mean"] if gap["gap"]["mean"] > 0 else None
        result[mode] = {
            "base": stages["base"]["held_out"][mode],
            "before": gap["student"],
            "teacher": gap["teacher"],
            "gap": gap["gap"],
            "after": after,
            "closed": closed,
        }
    return result


def table(results: dict[str, dict[str, Any]]) -> str:
    """A row for each seed and way of decoding."""
    lines = ["| seed | decoding | student before | teacher | gap | student after | gap closed | minutes |"]
    lines += ["|---|---|---:|---:|---:|---:|---:|---:|"]
    for name, result in results.items():
        for mode in MODES:
            row = result[mode]
            cells = (_estimate(row[key]) for key in ("before", "teacher", "gap", "after"))
            closed = "none to close" if row["closed"] is None else f"{row['closed']:.0%}"
            lines.append(f"| {name} | {mode} | {' | '.join(cells)} | {closed} | {result['minutes']:.0f} |")
    return "\n".join(lines) + "\n"


def _estimate(estimate: Mapping[str, float | None]) -> str:
    if estimate["low"] is None:
        return f"{estimate['mean']:.3f}"
    return f"{estimate['mean']:.3f} ({estimate['low']:.3f} to {estimate['high']:.3f})"


def main() -> None:
    arguments = parser(__doc__ or "", "outputs/context_distill_seeds").parse_args()
    for seed in arguments.seeds:
        run = arguments.runs.absolute() / f"seed_{seed}"
        train_and_probe(run, seed, arguments.flags)
        keep(run, RESULTS / run.name)
        shutil.copy(run / "probe" / "probe.json", RESULTS / run.name / "probe.json")
    report(sorted(RESULTS.glob("seed_*")))


def report(kept: list[Path]) -> None:
    """Table and picture of these runs."""
    results = {run.name: outcome(run) for run in kept}
    (RESULTS / "outcome.json").write_text(json.dumps(results, indent=1) + "\n")
    (RESULTS / "outcome.md").write_text(table(results))
    draw(kept)
    print(table(results))


def draw(runs: list[Path]) -> None:
    title = f"The share of right answers, learned without a reward: {len(runs)} seeds"
    plot_runs(runs, ROOT / "docs" / "context_distill.png", title, ("distill/reverse_kl", "loss/entropy"))


if __name__ == "__main__":
    main()
