"""Does a small model learn to search? `examples/wiki_search/rl.toml` on several seeds, with held-out questions.

`uv run python -m benchmarks.learning.wiki_search`: trains the seeds one after the other, copies their curves to
`benchmarks/results/wiki_search/`, draws `docs/wiki_search.png`, and writes the first ten held-out episodes of the first
seed, the first and not the best, to `benchmarks/results/wiki_search/rollouts.md`.
"""

import tomllib
from pathlib import Path

from benchmarks.harness.seeds import Recipe, parser, run_seeds
from slimrl.environments.find import load_taskset
from slimrl.monitor.rollouts import read_rollouts

METRICS = ("tool_calls", "right_page_first", "right_page", "right_section", "invalid_calls", "unfinished", "tokens")
WIDTH = 110  # of a line of a conversation; longer ones are cut
CURVES = ("env/tool_calls", "env/right_page_first", "env/right_section", "env/invalid_calls")
RECIPE = Recipe(
    config="wiki_search/rl.toml",
    name="wiki_search",
    title="SmolLM2-135M learns to search an encyclopedia on 2 CPU cores",
    metrics=METRICS,
    curves=CURVES,
)


def transcript(run: Path, num: int) -> str:
    """The first held-out episodes, sampled at temperature 1 after RL: the question with the reference, and line by line
    what the policy wrote and what it was told."""
    config = tomllib.loads((run / "config.toml").read_text())["orchestrator"]["env"][0]
    answers = {task.id: task.data["answer"] for task in load_taskset(config["id"], config["args"]).tasks("test")}
    lines = [f"The first {num} held-out episodes of {run.name} after RL, at temperature 1."]
    for record in read_rollouts(run / "held_out" / "final_sampled.jsonl")[:num]:
        rollout = record.rollout
        question, *rest = [message for message in rollout.messages if message["role"] != "system"]
        asked = question["content"].strip().splitlines()[-1]
        lines += ["", f"**{asked}** ({answers[rollout.task_id]}): reward {rollout.reward:g}", "", "```text"]
        lines += [f"{'' if m['role'] == 'assistant' else '    '}{_short(m['content'])}" for m in rest]
        lines.append("```")
    return "\n".join(lines) + "\n"


def _short(text: str) -> str:
    line = " ".join(text.replace("<result>", "").replace("</result>", "").split())
    return line if len(line) <= WIDTH else f"{line[:WIDTH]} ..."


def main() -> None:
    arguments = parser(__doc__ or "", "outputs/wiki_search_seeds").parse_args()
    runs = run_seeds(RECIPE, arguments)
    (RECIPE.results / "rollouts.md").write_text(transcript(runs[arguments.seeds[0]], 10))


if __name__ == "__main__":
    main()
