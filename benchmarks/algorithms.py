"""Every algorithm on one task: reverse_text on the CPU, from the same weights, with the same number of rollouts.

    python benchmarks/algorithms.py

A run is the `rl` command of the recipe with another `trainer.loss`; runs go one after the other, and finished ones of
the same settings in `--runs` are not repeated. Writes `benchmarks/results/algorithms.json` and draws
`docs/algorithms/curves.png`.
"""

from pathlib import Path

from harness import RESULTS, machine_facts, write_result
from learning import ROOT, Algorithm, common_arguments, recipe, starting_weights, summarised, table, train
from learning_plots import draw_each_on_all
from slimrl.config.loss import PRESETS

PICTURE = ROOT / "docs" / "algorithms" / "curves.png"
ALGORITHMS = (
    *(Algorithm(name, {"trainer.loss.type": name}) for name in PRESETS),
    # Its clip is far narrower than the rounding between sampler and trainer in bfloat16.
    Algorithm("gspo, float32", {"trainer.loss.type": "gspo", "model.dtype": "float32"}),
    Algorithm("ppo with gae", {"trainer.loss.type": "ppo", "trainer.loss.advantage": "gae"}),
)


def main() -> None:
    parser = common_arguments(__doc__ or "", RESULTS / "algorithms.json")
    names = [algorithm.name for algorithm in ALGORITHMS]
    parser.add_argument("--algorithms", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--picture", type=Path, default=PICTURE)
    arguments = parser.parse_args()
    facts = machine_facts()
    weights = starting_weights(arguments)
    runs: dict[str, dict[int, Path]] = {}
    for seed in arguments.seeds:  # so that an interrupted comparison has all algorithms on the first seeds
        for algorithm in ALGORITHMS:
            if algorithm.name in arguments.algorithms:
                runs.setdefault(algorithm.name, {})[seed] = train(algorithm, weights, seed, arguments)
    summary = {name: summarised(found, arguments.threshold) for name, found in runs.items()}
    content = {"recipe": recipe(arguments), "summary": summary}
    print(f"\n{table(content)}")
    private = {
        str(arguments.runs): "outputs/algorithms",
        str(arguments.weights): "WEIGHTS",
        str(arguments.picture): arguments.picture.name,
    }
    write_result(arguments.output, facts, content, private)
    title = f"Training reward on reverse_text: mean and range of {len(arguments.seeds)} seeds, grey: the others"
    draw_each_on_all(summary, arguments.picture, title)


if __name__ == "__main__":
    main()
