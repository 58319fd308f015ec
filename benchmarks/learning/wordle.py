"""Does a small model learn to play Wordle? `examples/wordle/rl.toml` on several seeds, with held-out games.

`uv run python -m benchmarks.learning.wordle`: trains the seeds one after the other, copies their curves to
`benchmarks/results/wordle/`, draws `docs/wordle.png`, and writes there: `consistency.json`, how far the guesses go with
the marks; `rises.json`, what RL adds game by game, in all games and in those whose first marks no warm-up had shown;
`rollouts.md`, the first ten held-out games of the first seed, the first and not the best. The last needs rollouts,
which are not kept: it is of the first seed that was asked for, and replaces what was there.
"""

import json
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.episodes import MODES, rises
from benchmarks.harness.seeds import STAGES, Recipe, parser, run_seeds, runs_beside
from slimrl.environments.find import load_taskset
from slimrl.environments.scripts import demonstrate
from slimrl.launch.supervised import order_of_demonstrations
from slimrl.monitor.rollouts import read_rollouts
from slimrl_envs.wordle.rules import feedback_of

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
        mode: {stage: metrics.get(f"held_out/consistent_{mode}") for stage, metrics in stages.items()} for mode in MODES
    }


def rises_of(seeds: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """What RL adds, by decoding. `unseen`: without the games that begin with a position which the warm-up of any of the
    seeds had shown, as some turn of another game."""
    positions = set().union(*map(warmup_positions, seeds))
    result: dict[str, dict[str, Any]] = {}
    for mode in MODES:
        result[mode] = rises(seeds, mode)
        result[f"{mode}, unseen"] = rises(seeds, mode, lambda game: _opening(game) not in positions)
    return result


def warmup_positions(run: Path) -> set[tuple[str, str]]:
    """The positions in the demonstrations of a run's warm-up: each guess with its marks."""
    config = tomllib.loads((run / "config.toml").read_text())
    env, warmup = config["orchestrator"]["env"][0], config["warmup"]
    taskset = load_taskset(env["id"], env["args"])
    order = order_of_demonstrations([taskset], config["seed"])
    positions: set[tuple[str, str]] = set()
    for place in range(warmup["max_steps"] * warmup["batch_size"]):
        for message in demonstrate(taskset, order.draw(place).task):
            if message["role"] == "user" and (told := re.search("word: (.*)\nmark: (.*)", message["content"])):
                positions.add((told[1].replace(" ", ""), told[2].replace(" ", "")))
    return positions


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


def _opening(game: str) -> tuple[str, str]:
    """The first guess of a game and its marks, as its task's id has them: `test/GUESS/ANSWER`."""
    _, guess, answer = game.split("/")
    return guess, feedback_of(guess, answer)


def main() -> None:
    arguments = parser(__doc__ or "", "outputs/wordle_seeds").parse_args()
    runs = [*run_seeds(RECIPE, arguments).values()]
    kept = runs_beside(RECIPE.results / runs[0].name)
    tables = {"consistency.json": {seed.name: consistency(seed) for seed in kept}, "rises.json": rises_of(kept)}
    for name, table in tables.items():
        (RECIPE.results / name).write_text(json.dumps(table, indent=1) + "\n")
    (RECIPE.results / "rollouts.md").write_text(transcript(runs[0], 10))


if __name__ == "__main__":
    main()
