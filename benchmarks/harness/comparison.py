"""What the comparisons of algorithms share: one task, one starting point, equal sampling, and what came of each run.

Every run is reinforcement learning on one recipe, reverse_text but for `credit.py`, from the same weights. Each step
samples the same number of rollouts: groups without a signal are not replaced (`orchestrator.resample_factor = 1`), so
an algorithm that can use fewer of them learns from fewer. Learning rate and schedule are the same for all.
"""

import argparse
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness.measure import machine_facts, markdown_table, median, write_result
from benchmarks.harness.plots import draw_each_on_all
from benchmarks.harness.runs import ROOT, SUMMARY, Job, drop_weights, finish, flags
from benchmarks.harness.warmup import warm_up
from slimrl.monitor.rollouts import read_rollouts
from slimrl.monitor.sinks import read_metrics
from slimrl.stats import estimate_mean, mean_of_few

REVERSE_TEXT = ROOT / "examples" / "reverse_text" / "rl.toml"
MODES = ("greedy", "sampled")
WINDOW = 5  # training steps whose mean reward has to reach the threshold
TABLE_HEAD = (
    "",
    "held-out reward, greedy (95%: questions; seeds)",
    "sampled (95%: questions; seeds)",
    "steps to {threshold:g}",
    "tokens sampled",
    "trained",
    "mismatch KL",
    "clipped",
    "train s a step",
    "minutes",
)


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A name for the table, and the settings that make it."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def slug(self) -> str:
        return self.name.replace(" ", "_").replace(",", "")


def common_arguments(description: str, output: Path) -> argparse.ArgumentParser:
    """The options of every comparison; one on another recipe sets the default of `recipe`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.set_defaults(recipe=REVERSE_TEXT)
    parser.add_argument("--model", default="smollm2-135m", help="model, as slimrl's model.name")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--weights", type=Path, help="where all runs begin; made by a warm-up if it is not given")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=25, help="training steps of each run")
    parser.add_argument("--lr", type=float, default=2e-5, help="of every run; the recipe's by default")
    parser.add_argument("--examples", type=int, default=200, help="held-out questions")
    parser.add_argument("--threshold", type=float, default=0.7, help="training reward that is to be reached")
    parser.add_argument("--runs", type=Path, default=Path("outputs/algorithms"), help="where the runs go")
    parser.add_argument("--output", type=Path, default=output)
    parser.add_argument("--more", nargs=argparse.REMAINDER, default=[], help="flags for every run, to the end")
    return parser


def initial_weights(arguments: argparse.Namespace) -> Path:
    """The weights that every run on reverse_text begins from, made once by a short supervised warm-up."""
    weights: Path = arguments.weights or warm_up(arguments)
    return weights


def run_settings(algorithm: Algorithm, model: Path | str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """What a run sets beyond the recipe. `model` is where it begins."""
    return {
        "seed": seed,
        "max_steps": arguments.steps,
        "model.name": model,
        "model.dtype": arguments.dtype,
        "warmup.max_steps": 0,
        "orchestrator.resample_factor": 1,
        "trainer.optim.lr": arguments.lr,
        "eval.num_examples": arguments.examples,
        "ckpt.interval_steps": 0,
        "ckpt.keep": 1,
        **algorithm.settings,
    }


def train(algorithm: Algorithm, model: Path | str, seed: int, arguments: argparse.Namespace) -> Path:
    """One run of the `rl` command, to its end."""
    run: Path = arguments.runs / f"{algorithm.slug}_seed_{seed}"
    settings = {"output_dir": run} | run_settings(algorithm, model, seed, arguments)
    finish(Job("rl", ["@", str(arguments.recipe), *flags(settings), *arguments.more], run))
    drop_weights(run)
    return run


def compare(
    algorithms: Sequence[Algorithm], model: Path | str, arguments: argparse.Namespace, title: str
) -> dict[str, dict[int, Path]]:
    """Trains all of them on every seed, prints their table, writes it to `arguments.output` and their curves to
    `arguments.picture`. Returns the runs, by algorithm and seed."""
    facts = machine_facts()
    runs: dict[str, dict[int, Path]] = {}
    for seed in arguments.seeds:  # so that an interrupted comparison has all algorithms on the first seeds
        for algorithm in algorithms:
            runs.setdefault(algorithm.name, {})[seed] = train(algorithm, model, seed, arguments)
    summary = {name: summary_of(found, arguments.threshold) for name, found in runs.items()}
    content = {"recipe": recipe(arguments), "summary": summary}
    print(f"\n{table(content)}")
    private = {
        str(arguments.runs): f"outputs/{arguments.output.stem}",
        str(arguments.weights): "WEIGHTS",
        str(arguments.picture): arguments.picture.name,
    }
    write_result(arguments.output, facts, content, private)
    title = f"{title}: mean and range of {len(arguments.seeds)} seeds, grey: the others"
    draw_each_on_all(summary, arguments.picture, title)
    return runs


def outcome(run: Path, seed: int, threshold: float) -> dict[str, Any]:
    """What a finished run led to, and what it cost."""
    stages = {stage: json.loads((run / "held_out" / f"{stage}.json").read_text()) for stage in ("start", "final")}
    summary = json.loads((run / SUMMARY).read_text())
    lines = [line for _, line in read_metrics(run / "metrics.jsonl") if "reward/mean" in line]
    curve = [round(line["reward/mean"], 4) for line in lines]
    trained = [line for line in lines if "loss/tokens" in line]  # a step without any signal changes nothing
    return {
        "seed": seed,
        **{f"{stage}_{mode}": found["held_out"][mode] for stage, found in stages.items() for mode in MODES},
        "curve": curve,
        "steps_to_threshold": steps_to(curve, threshold),
        "tokens_sampled": int(sum(line["rollout/tokens_sampled"] for line in lines)),
        "tokens_trained": int(sum(line["loss/tokens"] for line in trained)),
        "mismatch_kl": median_kl(line["guard/mismatch_kl"] for line in trained),
        "mismatch_kl_curve": [_round(line["guard/mismatch_kl"]) if "loss/tokens" in line else None for line in lines],
        "clipped": median((line["loss/clipped"] for line in trained), digits=4),
        "train_s": median(line["time/train_s"] for line in trained),
        "step_s": median(line["time/step_s"] for line in lines),
        "minutes": round(summary["duration_s"] / 60, 2),
    }


def median_kl(values: Iterable[float]) -> float:
    """To three digits, however small: in float32 it is about 1e-10."""
    return _round(statistics.median(values))


def _round(value: float) -> float:
    return float(f"{value:.3g}")


def steps_to(curve: Sequence[float], threshold: float) -> int | None:
    """Steps after which the mean reward of the last `WINDOW` is at the threshold for the first time; None if never."""
    for end in range(WINDOW, len(curve) + 1):
        if statistics.fmean(curve[end - WINDOW : end]) >= threshold:
            return end
    return None


def summary_of(runs: Mapping[int, Path], threshold: float) -> dict[str, Any]:
    """The seeds of one algorithm together."""
    outcomes = [outcome(run, seed, threshold) for seed, run in runs.items()]
    return {
        **{mode: held_out_rewards(outcomes, [*runs.values()], mode) for mode in MODES},
        "steps_to_threshold": [found["steps_to_threshold"] for found in outcomes],
        **{
            key: median((found[key] for found in outcomes), digits=5)
            for key in ("tokens_sampled", "tokens_trained", "clipped", "train_s", "step_s", "minutes")
        },
        "mismatch_kl": median_kl(found["mismatch_kl"] for found in outcomes),
        "runs": outcomes,
    }


def held_out_rewards(outcomes: Sequence[Mapping[str, Any]], runs: Sequence[Path], mode: str) -> dict[str, float | None]:
    """The mean of all seeds' final rewards. Over the questions: the interval for other questions, with these seeds.
    Over the seeds: the interval for other seeds, with these questions (Student's t)."""
    means = [found[f"final_{mode}"]["mean"] for found in outcomes]
    rewards_SQ = [
        {record.rollout.task_id: record.rollout.reward for record in read_rollouts(run / "held_out" / name)}
        for run in runs
        for name in (f"final_{mode}.jsonl",)
    ]
    questions = [statistics.fmean(rewards[task] for rewards in rewards_SQ) for task in rewards_SQ[0]]
    over_questions = estimate_mean(questions)
    over_seeds = mean_of_few(means)
    return {
        "mean": over_seeds.mean,
        "questions_low": _finite_or_none(over_questions.low),
        "questions_high": _finite_or_none(over_questions.high),
        "seeds_low": _finite_or_none(over_seeds.low),
        "seeds_high": _finite_or_none(over_seeds.high),
    }


def _finite_or_none(value: float) -> float | None:
    """JSON has no nan."""
    return None if math.isnan(value) else round(value, 4)


def table(content: Mapping[str, Any]) -> str:
    """A line for each algorithm, best sampled reward first."""
    summary: Mapping[str, Any] = content["summary"]
    head = [text.format(threshold=content["recipe"]["threshold"]) for text in TABLE_HEAD]
    rows = [
        (
            name,
            *(_reward(row[mode]) for mode in MODES),
            _steps(row["steps_to_threshold"]),
            f"{row['tokens_sampled']:,.0f}",
            f"{row['tokens_trained']:,.0f}",
            f"{row['mismatch_kl']:.2g}",
            f"{row['clipped']:.1%}",
            f"{row['train_s']:.2f}",
            ", ".join(f"{run['minutes']:.1f}" for run in row["runs"]),
        )
        for name, row in sorted(summary.items(), key=lambda item: -item[1]["sampled"]["mean"])
    ]
    runs = [run for row in summary.values() for run in row["runs"]]
    begins = ", ".join(f"{_range([run[f'start_{mode}']['mean'] for run in runs])} {mode}" for mode in MODES)
    return f"All begin at {begins}.\n\n{markdown_table(head, rows)}"


def _range(means: Sequence[float]) -> str:
    """The same weights earn the same when decoding greedily; what is sampled differs by the seed."""
    low, high = f"{min(means):.3f}", f"{max(means):.3f}"
    return low if low == high else f"{low} to {high}"


def _reward(row: Mapping[str, Any]) -> str:
    return f"{row['mean']:.3f} ({_interval(row, 'questions')}; {_interval(row, 'seeds')})"


def _interval(row: Mapping[str, Any], over: str) -> str:
    low, high = row[f"{over}_low"], row[f"{over}_high"]
    return "none" if low is None else f"{low:.3f} to {high:.3f}"


def _steps(found: Sequence[int | None]) -> str:
    return ", ".join("never" if steps is None else str(steps) for steps in found)


def recipe(arguments: argparse.Namespace) -> dict[str, Any]:
    """What all runs have in common."""
    return {
        "file": str(arguments.recipe.relative_to(ROOT)),
        **{key: vars(arguments)[key] for key in ("model", "dtype", "seeds", "steps", "lr", "examples", "threshold")},
        "more": arguments.more,
    }
