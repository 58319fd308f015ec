"""The learning claim of the README: the reverse_text recipe on several seeds, with held-out evaluation and intervals.

`uv run python -m benchmarks.learning.reverse_text`: trains the seeds one after the other (about five minutes each on
two cores with a matrix unit, fourteen without), copies their curves to `benchmarks/results/reverse_text/`, and draws
`docs/reverse_text.png`."""

import json
from pathlib import Path

from benchmarks.harness.seeds import Recipe, parser, run_seeds
from slimrl.monitor.rollouts import read_rollouts

RECIPE = Recipe(
    config="reverse_text/rl.toml",
    name="reverse_text",
    title="SmolLM2-135M learns to reverse text on 2 CPU cores",
    metrics=("exact",),
)


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


def main() -> None:
    arguments = parser(__doc__ or "", "outputs/reverse_text_seeds").parse_args()
    runs = run_seeds(RECIPE, arguments)
    lengths = {run.name: by_length(run) for run in runs.values()}
    (RECIPE.results / "by_length.json").write_text(json.dumps(lengths, indent=1) + "\n")
    (RECIPE.results / "examples.json").write_text(json.dumps(examples(runs[arguments.seeds[0]], 10), indent=1) + "\n")


if __name__ == "__main__":
    main()
