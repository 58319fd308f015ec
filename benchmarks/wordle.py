"""Does a small model learn to play Wordle? `examples/wordle/rl.toml` on several seeds, with held-out games.

`uv run python benchmarks/wordle.py`: trains the seeds one after the other, copies their curves to
`benchmarks/results/wordle/`, draws `docs/wordle.png`, and writes the first ten held-out games of the first seed, the
first and not the best, to `benchmarks/results/wordle/rollouts.md`.
"""

import json
from pathlib import Path

from seeds import STAGES, Recipe, parser, run_seeds
from slimrl.monitor.rollouts import read_rollouts

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


def main() -> None:
    arguments = parser(__doc__ or "", "outputs/wordle_seeds").parse_args()
    runs = run_seeds(RECIPE, arguments)
    table = {run.name: consistency(run) for run in runs.values()}
    (RECIPE.results / "consistency.json").write_text(json.dumps(table, indent=1) + "\n")
    (RECIPE.results / "rollouts.md").write_text(transcript(runs[arguments.seeds[0]], 10))


if __name__ == "__main__":
    main()
