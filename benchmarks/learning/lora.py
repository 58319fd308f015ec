"""Adapters beside full fine-tuning: held-out reward, time and peak memory of the reverse_text recipe at several ranks.

    python -m benchmarks.learning.lora

A supervised warm-up comes first, once, of all weights; every side begins from it. A side is the `rl` command of the
recipe, full fine-tuning at its learning rate or a rank at ten times that, on each seed. The sides take turns, one run
at a time; finished ones of the same settings in `--runs` are not run again. Writes `benchmarks/results/lora.json`.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks.harness.measure import RESULTS, machine_facts, markdown_table, median, write_result
from benchmarks.harness.runs import ROOT, SUMMARY, Job, finish, flags
from benchmarks.harness.warmup import WARMUP_LR, WARMUP_STEPS, warm_up
from slimrl.monitor.sinks import read_metrics

RECIPE = str(ROOT / "examples" / "reverse_text" / "rl.toml")
MODES = ("greedy", "sampled")
TABLE_HEAD = (
    "rank",
    "learning rate",
    "reward, greedy",
    "reward, sampled",
    "train s a step",
    "minutes",
    "peak GB",
    "MB",
)


def main() -> None:
    arguments = parse_arguments()
    facts = machine_facts()
    weights = warm_up(arguments)
    reports: dict[str, list[dict[str, Any]]] = {}
    for seed in arguments.seeds:
        for rank in (0, *arguments.ranks):
            run = arguments.runs / f"rank_{rank}_seed_{seed}"
            train(run, weights, rank, seed, arguments)
            reports.setdefault(str(rank), []).append({"seed": seed} | outcome(run))
    rates = {rank: learning_rate(int(rank), arguments) for rank in reports}
    summary = {rank: {"lr": rates[rank]} | medians(found) for rank, found in reports.items()}
    print(f"\n{table(summary)}")
    private = {str(arguments.runs): "outputs/lora"}
    write_result(arguments.output, facts, {"recipe": recipe(arguments), "summary": summary, "runs": reports}, private)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="model, as slimrl's model.name")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--lr", type=float, default=2e-5, help="of full fine-tuning; the recipe's by default")
    parser.add_argument("--lora-lr", type=float, default=2e-4, help="of every rank")
    parser.add_argument("--runs", type=Path, default=Path("outputs/lora"), help="where the runs go")
    parser.add_argument("--output", type=Path, default=RESULTS / "lora.json")
    parser.add_argument("--more", nargs=argparse.REMAINDER, default=[], help="flags for every run, such as fewer steps")
    return parser.parse_args()


def learning_rate(rank: int, arguments: argparse.Namespace) -> float:
    rate: float = arguments.lora_lr if rank else arguments.lr
    return rate


def recipe(arguments: argparse.Namespace) -> dict[str, Any]:
    """What all sides have in common."""
    return {
        "file": str(Path(RECIPE).relative_to(ROOT)),
        "model": arguments.model,
        "dtype": arguments.dtype,
        "warmup_steps": WARMUP_STEPS,
        "warmup_lr": WARMUP_LR,
        "more": arguments.more,
    }


def train(run: Path, weights: Path, rank: int, seed: int, arguments: argparse.Namespace) -> None:
    """One run of the recipe."""
    settings = {
        "output_dir": run,
        "seed": seed,
        "model.name": weights,
        "model.dtype": arguments.dtype,
        "model.lora.rank": rank,
        "trainer.optim.lr": learning_rate(rank, arguments),
        "warmup.max_steps": 0,
    }
    finish(Job("rl", ["@", RECIPE, *flags(settings), *arguments.more], run))


def outcome(run: Path) -> dict[str, Any]:
    """Held-out reward before and after, the time of a step and of the run, memory, and a checkpoint's size."""
    stages = {stage: json.loads((run / "held_out" / f"{stage}.json").read_text()) for stage in ("start", "final")}
    lines = [line for _, line in read_metrics(run / "metrics.jsonl") if "time/train_s" in line]
    (checkpoint, *_) = sorted((run / "checkpoints").glob("step_*/state.pt"))
    return {
        **{f"{stage}_{mode}": found["held_out"][mode] for stage, found in stages.items() for mode in MODES},
        "train_s": median(line["time/train_s"] for line in lines),
        "step_s": median(line["time/step_s"] for line in lines),
        "minutes": round(json.loads((run / SUMMARY).read_text())["duration_s"] / 60, 2),
        "peak_memory_gb": round(max(line["memory/peak_gb"] for line in lines), 2),
        "mismatch_kl": max(line["guard/mismatch_kl"] for line in lines if "guard/mismatch_kl" in line),
        "checkpoint_mb": round(checkpoint.stat().st_size / 1e6, 1),
    }


def medians(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """Over the seeds; of rewards the mean of all, with the lowest and the highest."""
    rewards = {mode: [report[f"final_{mode}"]["mean"] for report in reports] for mode in MODES}
    return {
        **{
            mode: {"mean": round(statistics.mean(found), 3), "low": round(min(found), 3), "high": round(max(found), 3)}
            for mode, found in rewards.items()
        },
        **{key: median(report[key] for report in reports) for key in ("train_s", "step_s", "minutes", "checkpoint_mb")},
        "peak_memory_gb": max(report["peak_memory_gb"] for report in reports),
        "mismatch_kl": max(report["mismatch_kl"] for report in reports),
    }


def table(summary: dict[str, Any]) -> str:
    """One line for each side."""
    rows = []
    for rank, row in summary.items():
        rewards = [f"{row[mode]['mean']:.3f} ({row[mode]['low']:.3f}-{row[mode]['high']:.3f})" for mode in MODES]
        costs = [f"{row['train_s']:.2f}", f"{row['minutes']:.1f}", f"{row['peak_memory_gb']:.2f}"]
        name = "all weights" if rank == "0" else rank
        rows.append((name, f"{row['lr']:g}", *rewards, *costs, f"{row['checkpoint_mb']:.0f}"))
    return markdown_table(TABLE_HEAD, rows)


if __name__ == "__main__":
    main()
