"""What a reward is credited to, on a task of one or two turns: alphabet sort on the CPU, an adapter on the base model.

    python -m benchmarks.learning.credit

As `algorithms.py`, with the first steps of another recipe: `trainer.loss.credit` is `episode` or `turn`, and
all else is the recipe's. Writes `benchmarks/results/credit.json` and draws `docs/algorithms/credit.png`. What each turn
earned in the held-out episodes goes to `credit_by_turn.json` beside it.
"""

import json
from pathlib import Path
from typing import Any

from benchmarks.harness.comparison import MODES, Algorithm, common_arguments, compare
from benchmarks.harness.measure import RESULTS
from benchmarks.harness.runs import ROOT
from benchmarks.learning.alphabet_sort import by_turn
from slimrl.config.loss import CREDITS
from slimrl.monitor.rollouts import read_rollouts

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
    runs = compare(algorithms, model, arguments, "Training reward on alphabet sort by credit")
    table = {name: {f"seed_{seed}": turns(run) for seed, run in of.items()} for name, of in runs.items()}
    arguments.output.with_name(f"{arguments.output.stem}_by_turn.json").write_text(json.dumps(table, indent=1) + "\n")


def turns(run: Path) -> dict[str, Any]:
    """What each turn of the held-out episodes earned, before and after, by the way of decoding."""
    names = [f"{stage}_{mode}" for stage in ("start", "final") for mode in MODES]
    records = {name: read_rollouts(run / "held_out" / f"{name}.jsonl") for name in names}
    return {name: by_turn([record.rollout for record in found]) for name, found in records.items()}


if __name__ == "__main__":
    main()
