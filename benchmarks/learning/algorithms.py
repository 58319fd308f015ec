"""Every algorithm on one task: reverse_text on the CPU, from the same weights, with the same number of rollouts.

    python -m benchmarks.learning.algorithms

A run is the `rl` command of the recipe with another `trainer.loss`; runs go one after the other, and finished ones of
the same settings in `--runs` are not repeated. Writes `benchmarks/results/algorithms.json` and draws
`docs/algorithms/curves.png`.
"""

from pathlib import Path

from benchmarks.harness.comparison import Algorithm, common_arguments, compare, initial_weights
from benchmarks.harness.measure import RESULTS
from benchmarks.harness.runs import ROOT
from slimrl.config.loss import PRESETS

PICTURE = ROOT / "docs" / "algorithms" / "curves.png"
ALGORITHMS = (
    *(Algorithm(name, {"trainer.loss.type": name}) for name in PRESETS),
    # Its clip is far narrower than the rounding between sampler and trainer in bfloat16.
    Algorithm("gspo, float32", {"trainer.loss.type": "gspo", "model.dtype": "float32"}),
    Algorithm("ppo with gae", {"trainer.loss.type": "ppo", "trainer.loss.advantage": "gae"}),
    Algorithm("grpo with kl_beta", {"trainer.loss.type": "grpo", "trainer.loss.kl_beta": 0.04}),  # GRPO's paper
    Algorithm("grpo with rae", {"trainer.loss.type": "grpo", "trainer.loss.advantage": "rae"}),
)


def main() -> None:
    parser = common_arguments(__doc__ or "", RESULTS / "algorithms.json")
    names = [algorithm.name for algorithm in ALGORITHMS]
    parser.add_argument("--algorithms", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--picture", type=Path, default=PICTURE)
    arguments = parser.parse_args()
    chosen = [algorithm for algorithm in ALGORITHMS if algorithm.name in arguments.algorithms]
    compare(chosen, initial_weights(arguments), arguments, "Training reward on reverse_text")


if __name__ == "__main__":
    main()
