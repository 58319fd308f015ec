"""Does a small model learn to search? `examples/wiki_search/cpu.toml` on several seeds, with held-out questions.

`uv run python benchmarks/wiki_search.py`: trains the seeds one after the other, copies their curves to
`benchmarks/results/wiki_search/`, draws `docs/wiki_search.png`, and writes the first ten held-out episodes of the first
seed, the first and not the best, to `benchmarks/results/wiki_search/rollouts.md`.
"""

from pathlib import Path

from seeds import Recipe, parser, run_seeds
from slimrl.monitor.rollouts import read_rollouts

METRICS = ("tool_calls", "right_page_first", "right_page", "right_section", "invalid_calls", "unfinished", "tokens")
CURVES = ("env/tool_calls", "env/right_page_first", "env/right_section", "env/invalid_calls")
RECIPE = Recipe(
    config="wiki_search/cpu.toml",
    name="wiki_search",
    title="SmolLM2-135M learns to search an encyclopedia on 2 CPU cores",
    metrics=METRICS,
    curves=CURVES,
)


def transcript(run: Path, num: int) -> str:
    """The first held-out episodes, sampled at temperature 1 after RL, without the instructions that all begin with."""
    parts = []
    for record in read_rollouts(run / "held_out" / "final_sampled.jsonl")[:num]:
        rollout = record.rollout
        parts.append(f"## {rollout.task_id}: reward {rollout.reward:g}\n")
        question, *rest = [message for message in rollout.messages if message["role"] != "system"]
        parts.append(f"**question** {question['content'].strip().splitlines()[-1]}\n")
        parts += [f"**{message['role']}** `{_short(message['content'])}`\n" for message in rest]
    return "\n".join(parts)


def _short(text: str, most: int = 400) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most]} ..."


def main() -> None:
    arguments = parser(__doc__ or "", "outputs/wiki_search_seeds").parse_args()
    runs = run_seeds(RECIPE, arguments)
    (RECIPE.results / "rollouts.md").write_text(transcript(runs[arguments.seeds[0]], 10))


if __name__ == "__main__":
    main()
