"""Does a small model learn to sort without being taught? `examples/alphabet_sort/rl.toml` on several seeds.

`uv run python -m benchmarks.learning.alphabet_sort`: trains the seeds one after the other, copies their curves to
`benchmarks/results/alphabet_sort/`, draws `docs/alphabet_sort.png`, and writes there: `by_turn.json`, what each turn
earns; `rollouts.md`, the first ten held-out episodes of the first seed before and after RL, the first and not the best;
`strict.json`, what `examples/alphabet_sort/eval.toml` says of the base model and of each seed, with its higher power.
These three need weights or rollouts, which are not kept: they are of the seeds that were asked for, and replace what
was there.
"""

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.harness.episodes import STAGES, finished_episodes, transcript
from benchmarks.harness.runs import ROOT, Job, finish
from benchmarks.harness.seeds import Recipe, parser, run_seeds
from slimrl.io.run_dir import step_directories
from slimrl.types import Rollout

METRICS = ("similarity", "exact", "tagged", "names", "marks")
RECIPE = Recipe(
    config="alphabet_sort/rl.toml",
    name="alphabet_sort",
    title="Alphabet sort, SmolLM2-135M on a CPU",
    metrics=METRICS,
    curves=tuple(f"env/{name}" for name in METRICS),
)
EVAL = str(ROOT / "examples" / "alphabet_sort" / "eval.toml")


def by_turn(rollouts: Sequence[Rollout]) -> dict[str, dict[str, float]]:
    """What each turn earned on average of the most that it could, by the number of turns of the episode."""
    table: dict[str, dict[str, float]] = {}
    for num in sorted({len(rollout.turn_rewards) for rollout in rollouts}):
        some = [rollout for rollout in rollouts if len(rollout.turn_rewards) == num]
        means = {f"turn {k + 1}": round(num * fmean(r.turn_rewards[k] for r in some), 3) for k in range(num)}
        table[f"{num} turns"] = {"episodes": len(some), **means}
    return table


def strict(run: Path, model: str, directory: Path) -> dict[str, dict[str, Any]]:
    """The rewards by name, the model's first and then the baselines', and the share of right turns with the power of
    `eval.toml`, in the precision of the run."""
    dtype = tomllib.loads((run / "eval.toml").read_text())["model"]["dtype"]
    argv = ["@", EVAL, "--model.name", model, "--model.dtype", dtype, "--output_dir", str(directory)]
    finish(Job("eval", argv, directory, result="results.json"), resume=True)
    evaluations = json.loads((directory / "results.json").read_text())["evaluations"]
    return {
        name: {mode: {"reward": of["reward"], "exact": of["scores"]["exact"]["mean"]} for mode, of in modes.items()}
        for name, modes in evaluations.items()
    }


def strict_table(runs: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """The base model, the baselines, and every run's last weights."""
    base = tomllib.loads((runs[0] / "config.toml").read_text())["model"]["name"]
    found = strict(runs[0], base, runs[0].parent / "strict_base")
    table = {"base": found.pop(base), **found}
    for run in runs:
        weights = str(step_directories(run / "weights")[-1])
        table[run.name] = strict(run, weights, run / "strict")[weights]
    return table


def main() -> None:
    arguments = parser(__doc__ or "", "outputs/alphabet_sort_seeds").parse_args()
    runs = run_seeds(RECIPE, arguments)
    tables = {
        run.name: {name: by_turn(finished_episodes(run, stage, "sampled")) for stage, name in STAGES.items()}
        for run in runs.values()
    }
    (RECIPE.results / "by_turn.json").write_text(json.dumps(tables, indent=1) + "\n")
    (RECIPE.results / "strict.json").write_text(json.dumps(strict_table([*runs.values()]), indent=1) + "\n")
    (RECIPE.results / "rollouts.md").write_text(transcript(runs[arguments.seeds[0]], 10))


if __name__ == "__main__":
    main()
