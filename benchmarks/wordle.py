"""Does a small model learn to play Wordle? `examples/wordle/rl.toml` on several seeds, with held-out games.

`uv run python benchmarks/wordle.py`: trains the seeds one after the other, copies their curves to
`benchmarks/results/wordle/`, draws `docs/wordle.png`, and writes there: `consistency.json`, how far the guesses go with
the marks; `rises.json`, what RL adds game by game; `rollouts.md`, the first ten held-out games of the first seed, the
first and not the best. The last two need rollouts, which are not kept: they are of the seeds that were asked for, and
replace what was there.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from seeds import STAGES, Recipe, kept_beside, parser, run_seeds
from slimrl.monitor.rollouts import read_rollouts
from slimrl.monitor.stats import paired_difference

RECIPE = Recipe(
    config="wordle/rl.toml",
    name="wordle",
    title="SmolLM2-135M learns to play Wordle on a CPU",
    metrics=("won", "guesses", "valid", "tagged", "best_greens", "repeated"),
    curves=("env/won", "env/valid", "env/consistent", "env/best_greens"),
)


def consistency(run: Path) -> dict[str, dict[str, float | None]]:
    """The share of guesses that could have been the answer after all marks before, by decoding and stage; nothing where
    no game had two guesses that could be played."""
    stages = {stage: json.loads((run / "held_out" / f"{stage}.json").read_text())["metrics"] for stage in STAGES}
    return {
        mode: {stage: metrics.get(f"held_out/consistent_{mode}") for stage, metrics in stages.items()}
        for mode in ("greedy", "sampled")
    }


def rises(runs: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """What RL adds to the reward of the same held-out games, those that failed nowhere, by decoding, with 95% intervals
    over games: of each run, and of all, the mean over runs of each game taken first."""
    result: dict[str, dict[str, Any]] = {}
    for mode in ("greedy", "sampled"):
        before, after = ([_rewards(run, stage, mode) for run in runs] for stage in ("start", "final"))
        games = [game for game in before[0] if all(game in stage for stage in (*before, *after))]
        pairs = {
            run.name: ([old[game] for game in games], [new[game] for game in games])
            for run, old, new in zip(runs, before, after, strict=True)
        }
        pairs["together"] = tuple([fmean(one[game] for one in stage) for game in games] for stage in (before, after))
        result[mode] = {name: asdict(paired_difference(new, old)) for name, (old, new) in pairs.items()}
    return result


def transcript(run: Path, num: int) -> str:
    """The first held-out games, sampled at temperature 1 after RL: line by line what the policy wrote and was told."""
    lines = [f"The first {num} held-out games of {run.name} after RL, at temperature 1."]
    for record in read_rollouts(run / "held_out" / "final_sampled.jsonl")[:num]:
        rollout = record.rollout
        answer = rollout.task_id.partition("/")[2]
        end = f"won with guess {rollout.metrics['guesses']:g}" if rollout.metrics["won"] else "lost"
        lines += ["", f"**{answer}**: {end}, reward {rollout.reward:.3f}", "", "```text"]
        for message in rollout.messages:
            if message["role"] == "assistant":
                lines.append(" ".join(message["content"].split()))
            elif message["role"] == "user":
                lines.append("    " + "; ".join(message["content"].splitlines()))
        lines.append("```")
    return "\n".join(lines) + "\n"


def _rewards(run: Path, stage: str, mode: str) -> dict[str, float]:
    rollouts = [record.rollout for record in read_rollouts(run / "held_out" / f"{stage}_{mode}.jsonl")]
    return {rollout.task_id: rollout.reward for rollout in rollouts if not rollout.failure}


def main() -> None:
    arguments = parser(__doc__ or "", "outputs/wordle_seeds").parse_args()
    runs = [*run_seeds(RECIPE, arguments).values()]
    table = {kept.name: consistency(kept) for kept in kept_beside(RECIPE.results / runs[0].name)}
    (RECIPE.results / "consistency.json").write_text(json.dumps(table, indent=1) + "\n")
    (RECIPE.results / "rises.json").write_text(json.dumps(rises(runs), indent=1) + "\n")
    (RECIPE.results / "rollouts.md").write_text(transcript(runs[0], 10))


if __name__ == "__main__":
    main()
