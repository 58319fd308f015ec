"""What a reward is credited to, on a task of one or two turns: alphabet sort on the CPU, an adapter on the base model.

    python benchmarks/credit.py

As `algorithms.py`, with the first steps of another recipe: `trainer.loss.credit` is `episode`, `turn` or `state`, and
all else is the recipe's. Writes `benchmarks/results/credit.json` and draws `docs/algorithms/credit.png`.
"""

from pathlib import Path

from harness import RESULTS
from learning import ROOT, Algorithm, common_arguments, compare
from slimrl.config.loss import CREDITS

PICTURE = ROOT / "docs" / "algorithms" / "credit.png"


def main() -> None:
    parser = common_arguments(__doc__ or "", RESULTS / "credit.json")
    parser.add_argument("--picture", type=Path, default=PICTURE)
    parser.set_defaults(
        recipe=ROOT / "examples" / "alphabet_sort" / "rl.toml",
        lr=1e-4,
        steps=12,
        examples=100,
        threshold=0.4,
        runs=Path("outputs/credit"),
    )
    arguments = parser.parse_args()
    algorithms = [Algorithm(credit, {"trainer.loss.credit": credit}) for credit in CREDITS]
    model = arguments.weights or arguments.model
    compare(algorithms, model, arguments, "Training reward on alphabet sort by credit")


if __name__ == "__main__":
    main()
