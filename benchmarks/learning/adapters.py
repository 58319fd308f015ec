"""Does a small model learn from what others wrote? A recipe for each door, on several seeds.

`uv run --extra textarena python -m benchmarks.learning.adapters textarena`: trains the seeds one after the other (about
ten minutes each on one core), copies their curves to `benchmarks/results/NAME/`, draws `docs/NAME.png`, and writes the
first ten held-out episodes of each seed before and after RL, the first and not the best, to `rollouts.md`. Each recipe
needs its extra; that of verifiers also needs `PYTHONPATH=examples/verifiers`.
"""

from benchmarks.harness.episodes import transcript
from benchmarks.harness.seeds import Recipe, parser, run_seeds

TITLE = "SmolLM2-135M on a CPU"
PARTS = ("chain_sum", "products")
PARTS_CURVES = ("env/chain_sum", "env/products")
RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe("reasoning_gym/rl.toml", "reasoning_gym", f"Two tasks of reasoning-gym, {TITLE}", PARTS, PARTS_CURVES),
        Recipe("textarena/rl.toml", "textarena", f"TextArena's GuessTheNumber, {TITLE}", ["won"]),
        Recipe("verifiers/rl.toml", "verifiers", f"A taskset of verifiers, {TITLE}", ["exact"]),
        Recipe("your_task/rl.toml", "your_task", f"200 sums from a file, {TITLE}", ["reward_number", "reward_close"]),
        Recipe("your_task/rl_tools.toml", "mcp_tool", f"A tool of an MCP server, {TITLE}", []),
    )
}


def main() -> None:
    made = parser(__doc__ or "", "outputs/adapters")
    made.add_argument("recipe", choices=RECIPES)
    arguments = made.parse_args()
    arguments.runs = arguments.runs / arguments.recipe
    recipe = RECIPES[arguments.recipe]
    runs = run_seeds(recipe, arguments)
    (recipe.results / "rollouts.md").write_text("\n".join(transcript(run, 10) for run in runs.values()))


if __name__ == "__main__":
    main()
