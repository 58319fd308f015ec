"""Does a small model learn to negotiate? `examples/matching_game/rl.toml` on several seeds, with held-out games.

`uv run python -m benchmarks.learning.matching_game`: trains the seeds one after the other, copies their curves to
`benchmarks/results/matching_game/`, draws `docs/matching_game.png`, and writes there: `marks.md`, what the seeds earn
beside the scripts of `baselines.json`, which play the same games; `rises.json`, what RL adds game by game;
`by_questions.json`, what held-out games earn by how much was asked; `questions/`, whether questions change in training
and go with the reward, and how many the warm-up's demonstrations ask; `rollouts.md`, the first ten held-out games of
the first seed, the first and not the best. The last three need rollouts, which are not kept: they are of the seeds that
were asked for, and replace what was there.
"""

import json
from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.harness.episodes import MODES, finished_episodes, rises
from benchmarks.harness.measure import markdown_table
from benchmarks.harness.seeds import Recipe, parser, run_seeds, runs_beside
from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig
from slimrl.environments.find import load_taskset
from slimrl.environments.scripts import demonstrate
from slimrl.io.run_dir import RunDir
from slimrl.launch.supervised import order_of_demonstrations
from slimrl.monitor.rollouts import read_rollouts
from slimrl.types import Rollout
from slimrl_envs.matching_game.analysis import analyze, count_questions_before_proposal

RECIPE = Recipe(
    config="matching_game/rl.toml",
    name="matching_game",
    title="SmolLM2-135M learns to negotiate on a CPU",
    metrics=(
        "agreed",
        "optimum",
        "proposals",
        "valid_proposals",
        "questions",
        "distinct_questions",
        "errors",
        "own_view",
    ),
    curves=("env/questions", "env/valid_proposals", "env/agreed", "env/optimum"),
)
COLUMNS = ("agreed", "optimum", "proposals", "valid_proposals", "questions", "distinct_questions", "errors")
STAGES = {"base": "the base model", "start": "after the warm-up", "final": "after RL"}


def of_scripts(baselines: Path) -> dict[str, dict[str, Any]]:
    """Reward and metrics of those that are no model, by name."""
    evaluations = json.loads(baselines.read_text())["evaluations"]
    scripted = {name: modes["scripted"] for name, modes in evaluations.items() if "scripted" in modes}
    return {
        name: {"reward": of["reward"], **{column: of["scores"][column]["mean"] for column in COLUMNS}}
        for name, of in scripted.items()
    }


def of_run(run: Path, mode: str) -> dict[str, dict[str, Any]]:
    """The same of a run's stages."""
    stages = {stage: json.loads((run / "held_out" / f"{stage}.json").read_text()) for stage in STAGES}
    return {
        f"{run.name}, {STAGES[stage]}, {mode}": {
            "reward": of["held_out"][mode],
            **{column: of["metrics"][f"held_out/{column}_{mode}"] for column in COLUMNS},
        }
        for stage, of in stages.items()
    }


def marks(runs: Sequence[Path], baselines: Path) -> str:
    """A line for every script, and for every stage of every run."""
    lines = of_scripts(baselines)
    for run in runs:
        for mode in MODES:
            lines |= of_run(run, mode)
    rows = [(name, _estimate(of["reward"]), *(f"{of[column]:.2f}" for column in COLUMNS)) for name, of in lines.items()]
    head = ("who", "reward (95% interval)", *(column.replace("_", " ") for column in COLUMNS))
    return markdown_table(head, rows) + "\n"


def by_questions(run: Path) -> dict[str, dict[str, dict[str, float]]]:
    """The games by their number of different questions before the first proposal: how many, and the means of what they
    earn, of agreements and of optima. By stage and decoding; `none` is games without a proposal."""
    table: dict[str, dict[str, dict[str, float]]] = {}
    for stage, mode in product(("start", "final"), MODES):
        games: dict[str, list[Rollout]] = {}
        for rollout in finished_episodes(run, stage, mode):
            asked = count_questions_before_proposal(
                [m["content"] for m in rollout.messages if m["role"] == "assistant"]
            )
            games.setdefault("none" if asked is None else str(asked), []).append(rollout)
        table[f"{STAGES[stage]}, {mode}"] = {
            asked: {
                "games": len(games[asked]),
                "reward": round(fmean(rollout.reward for rollout in games[asked]), 4),
                **{name: round(fmean(r.metrics[name] for r in games[asked]), 4) for name in ("agreed", "optimum")},
            }
            for asked in sorted(games)
        }
    return table


def questions_of_demonstrations(run: Path) -> dict[str, Any]:
    """How often the demonstrations that a run's warm-up learned from ask before the first proposal: what training
    begins near, and a mixture by design. How many do so often, and the mean."""
    config = load(RLConfig, ["@", str(RunDir(run).settings)], {}).config
    (env,) = config.orchestrator.env
    taskset, num = load_taskset(env.id, env.args), config.warmup.max_steps * config.warmup.batch_size
    order = order_of_demonstrations([taskset], config.seed)
    games = [demonstrate(taskset, order.draw(place).task) for place in range(num)]
    asked = [
        count_questions_before_proposal([m["content"] for m in game if m["role"] == "assistant"]) for game in games
    ]
    counts = Counter(number for number in asked if number is not None)
    mean = sum(number * count for number, count in counts.items()) / counts.total()
    return {"games": len(games), "mean": round(mean, 3), "with_so_many": {str(n): counts[n] for n in sorted(counts)}}


def transcript(run: Path, num: int) -> str:
    """The first held-out games, sampled at temperature 1 after RL: what the policy wrote and, indented, read."""
    lines = [f"The first {num} held-out games of {run.name} after RL, at temperature 1."]
    for record in read_rollouts(run / "held_out" / "final_sampled.jsonl")[:num]:
        rollout = record.rollout
        end = f"agreed, {rollout.reward:.3f}" if rollout.metrics["agreed"] else "no agreement"
        lines += ["", f"**{rollout.task_id}**: {end} (own view {rollout.metrics['own_view']:.3f})", "", "```text"]
        for message in rollout.messages:
            indent = {"assistant": "", "user": "    "}.get(message["role"])
            if indent is not None:
                lines += [f"{indent}{line}" for line in message["content"].splitlines()]
        lines.append("```")
    return "\n".join(lines) + "\n"


def _estimate(estimate: dict[str, float | None]) -> str:
    if estimate["low"] is None or estimate["high"] is None:
        return f"{estimate['mean']:.3f}"
    return f"{estimate['mean']:.3f} ({estimate['low']:.3f} to {estimate['high']:.3f})"


def main() -> None:
    arguments = parser(__doc__ or "", "outputs/matching_game_seeds").parse_args()
    runs = [*run_seeds(RECIPE, arguments).values()]
    kept = runs_beside(RECIPE.results / runs[0].name)
    (RECIPE.results / "marks.md").write_text(marks(kept, RECIPE.results / "baselines.json"))
    tables = {
        "rises.json": {mode: rises(kept, mode) for mode in MODES},
        "by_questions.json": {run.name: by_questions(run) for run in runs},
    }
    for name, table in tables.items():
        (RECIPE.results / name).write_text(json.dumps(table, indent=1) + "\n")
    analyze(runs, RECIPE.results / "questions")
    shown = {run.name: questions_of_demonstrations(run) for run in runs}
    (RECIPE.results / "questions" / "demonstrations.json").write_text(json.dumps(shown, indent=1) + "\n")
    (RECIPE.results / "rollouts.md").write_text(transcript(runs[0], 10))


if __name__ == "__main__":
    main()
