"""How long do new games of the matching game take, and are they distributed as those of the published game?

`uv run python -m benchmarks.checks.deals`: a thousand games of eight papers, as `scripts/generate_data.py` deals them,
beside the published way, which draws a table and throws it away until talking pays; and beside the games that the
published program makes of its seeds (`upstream_deal`). About three minutes."""

import argparse
import random
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.stats import ks_2samp

from benchmarks.harness.measure import RESULTS, machine_facts, markdown_table, median, write_result
from slimrl_envs.matching_game.rules.deal import MARGIN, UNKNOWN, Deal
from slimrl_envs.matching_game.rules.generator import deals, deals_of_seed, upstream_deal

SIZE = 8
# What a game is like, whoever is called what: a number, or one for each player.
STATISTICS: dict[str, Callable[[Deal], Sequence[float]]] = {
    "best score": lambda deal: [deal.best],
    "found alone / best": lambda deal: [deal.score(deal.own_best(player)) for player in (0, 1)],
    "known cells": lambda deal: [float(np.sum(mask)) for mask in deal.known],
    "scale": lambda deal: deal.scales,
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=1000, help="of ours")
    parser.add_argument("--one-by-one", type=int, default=20, help="games dealt the published way, for its time")
    parser.add_argument("--published", type=int, default=400, help="seeds of the published program")
    parser.add_argument("--repetitions", type=int, default=3, help="of both times, in turn")
    parser.add_argument("--output", type=Path, default=RESULTS / "deals.json")
    return parser.parse_args()


def one_by_one(rng: np.random.Generator) -> Any:
    """A game the published way: the whole rule, asked of one table after the other."""
    while True:
        table = rng.integers(0, 100, (SIZE, SIZE))
        masks = rng.random((2, SIZE, SIZE)) < 0.4
        table[~masks.any(axis=0)] = UNKNOWN
        best = table[linear_sum_assignment(table, maximize=True)].sum()
        looks = (np.where(mask, table, UNKNOWN) for mask in masks)
        if all(MARGIN * table[linear_sum_assignment(look, maximize=True)].sum() < best for look in looks):
            return table


def times(arguments: argparse.Namespace) -> dict[str, float]:
    """Seconds for 1,000 games, medians of this process's own time; each repetition deals other games."""
    ours_s, theirs_s = [], []
    for repetition in range(arguments.repetitions):
        began = time.process_time()
        for _ in islice(deals(random.Random(repetition), SIZE), arguments.games):
            pass
        ours_s.append((time.process_time() - began) * 1000 / arguments.games)
        rng, began = np.random.default_rng(repetition), time.process_time()
        for _ in range(arguments.one_by_one):
            one_by_one(rng)
        theirs_s.append((time.process_time() - began) * 1000 / arguments.one_by_one)
    ratio = median(theirs / ours for ours, theirs in zip(ours_s, theirs_s, strict=True))
    return {"seconds": median(ours_s), "one_by_one_seconds": median(theirs_s), "ratio": ratio}


def distributions(arguments: argparse.Namespace) -> dict[str, Any]:
    """Ours beside the published program's, without its seeds that give up and deal a game that breaks the rule."""
    ours = list(islice(deals_of_seed(SIZE, 0), arguments.games))
    seeds = [upstream_deal(seed) for seed in range(arguments.published)]
    theirs = [deal for deal in seeds if deal.requires_communication]
    result: dict[str, Any] = {}
    for name, statistic in STATISTICS.items():
        first, second = ([value for deal in found for value in statistic(deal)] for found in (ours, theirs))
        result[name] = {
            "ours": float(np.mean(first)),
            "published": float(np.mean(second)),
            "p": float(ks_2samp(first, second).pvalue),
        }
    within = sum(deal.requires_communication for deal in ours)
    return {"games": len(ours), "within_rule": within, "published": len(theirs), "statistics": result}


def table(content: dict[str, Any]) -> str:
    """The times, then a line for each statistic."""
    took, found = content["times"], content["distributions"]
    rows = [
        (name, f"{row['ours']:.4g}", f"{row['published']:.4g}", f"{row['p']:.2f}")
        for name, row in found["statistics"].items()
    ]
    return (
        f"1,000 games of {SIZE} papers: {took['seconds']:.1f} s; one table after the other "
        f"{took['one_by_one_seconds']:.0f} s, {took['ratio']:.1f} times as long. {found['within_rule']} of "
        f"{found['games']} are within the rule.\n\n"
        + markdown_table(
            ("mean of", f"{found['games']} of ours", f"{found['published']} published", "p (Kolmogorov-Smirnov)"), rows
        )
    )


def main() -> None:
    arguments = parse_arguments()
    facts = machine_facts()
    content = {"times": times(arguments), "distributions": distributions(arguments)}
    print(table(content))
    write_result(arguments.output, facts, content, {})


if __name__ == "__main__":
    main()
