"""Checks from a run's files whether the run behaves like the recorded runs (seeds) of its recipe.

The check compares the training reward at every step, the held-out rewards before and after RL, and their increase. The
verdict is wrong for about one in a hundred normal runs (`tolerance.CHANCE`).
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal

import numpy as np

from slimrl.config.reading.saved import read_run_config
from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl.monitor.metrics import select_held_out_rewards
from slimrl.monitor.series import Series, load_series, smooth
from slimrl_tools.curves.reference import Difference, Mean, Recipe, all_recipes, evaluations_of, recognise
from slimrl_tools.curves.tolerance import Band, curve_band, level_half

REWARD = "reward/mean"
Verdict = Literal["behaves", "differs", "void"]
BEFORE = "before RL"
# Each compared number is a weighted sum of a run's first and last evaluation, with these two factors.
QUANTITIES = {BEFORE: (1, 0), "after RL": (0, 1), "rise by RL": (-1, 1)}


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of the run's `value` with the band from `low` to `high`. For a curve, these three numbers are from
    `step`: the first step outside of the band, or the last step if the whole curve is inside."""

    what: str
    value: float
    low: float
    high: float
    step: int | None = None

    @property
    def direction(self) -> str:
        """Return the position relative to the band: "inside", "above" or "below"."""
        return "below" if self.value < self.low else "above" if self.value > self.high else "inside"


@dataclass(frozen=True, slots=True)
class CurveCheck:
    """The result of the comparison of a run with its recipe."""

    recipe: Recipe
    verdict: Verdict
    num_steps: int
    differences: Sequence[Difference]
    findings: Sequence[Comparison]

    @property
    def outside(self) -> list[Comparison]:
        """Return the comparisons that are outside of their bands."""
        return [one for one in self.findings if one.direction != "inside"]


def check_curve(run_dir: Path) -> CurveCheck:
    """Compare a run with the recorded runs of its recipe. Raises UserError if the directory is not a run or has no
    training metrics yet, or if no recipe has the run's environments."""
    recipe, differs = _recipe_of(run_dir)
    series = load_series(run_dir)
    if REWARD not in series or not np.intersect1d(series[REWARD][0], recipe.align(REWARD)[0]).size:
        raise UserError(f"{run_dir} has no training step yet, so there is no curve to compare. Wait for its first one.")
    return compare(recipe, differs, series)


def compare(recipe: Recipe, differs: Sequence[Difference], series: Mapping[str, Series]) -> CurveCheck:
    """Compare a run's metrics with a recipe, given the differences between their settings."""
    keys = {one.key for one in differs}
    findings = [_compare_rewards(recipe, series)]
    if "eval.num_examples" not in keys:  # otherwise the run was evaluated on other tasks
        is_whole = series[REWARD][0][-1] + 1 >= recipe.num_steps and "max_steps" not in keys
        findings += _compare_held_out(recipe, series, is_whole)
    is_outside = any(one.direction != "inside" for one in findings)
    verdict: Verdict = "differs" if is_outside else "behaves"
    if not all(one.loose for one in differs):
        verdict = "void"
    return CurveCheck(recipe, verdict, len(series[REWARD][0]), differs, findings)


def _recipe_of(run_dir: Path) -> tuple[Recipe, list[Difference]]:
    config = read_run_config(run_dir)
    if found := recognise(config):
        return found
    known = ", ".join(f"`slimrl rl @ {recipe.config_file}`" for recipe in all_recipes())
    ids = sorted({env.id for env in config.orchestrator.env}) if isinstance(config, RLConfig) else []
    what = f"trains on {', '.join(ids)}" if ids else f"is a run of `slimrl {config.command}`"
    raise UserError(f"{run_dir} {what}, and nothing is recorded of that. Recorded are {known}.")


def _compare_rewards(recipe: Recipe, series: Mapping[str, Series]) -> Comparison:
    steps, own_S = series[REWARD]
    recorded_S, values_RS = recipe.align(REWARD)
    shared_S = np.intersect1d(steps, recorded_S)
    rows_RS = values_RS[:, np.isin(recorded_S, shared_S)]
    # Estimate the band's width from all steps of the recipe, because the first steps of a run are too few.
    whole = curve_band(values_RS)
    smoothed_RS = np.array([smooth(row, whole.reach) for row in rows_RS])
    band = Band(smoothed_RS.mean(axis=0), whole.half, whole.reach)
    smoothed_S = smooth(own_S[np.isin(steps, shared_S)], band.reach)
    outside = np.flatnonzero((smoothed_S < band.low_S) | (smoothed_S > band.high_S))
    at = outside[0] if len(outside) else -1
    return Comparison(REWARD, float(smoothed_S[at]), float(band.low_S[at]), float(band.high_S[at]), int(shared_S[at]))


def _compare_held_out(recipe: Recipe, series: Mapping[str, Series], is_whole: bool) -> Iterator[Comparison]:
    """Compare the held-out reward before RL with its band. If `is_whole`, also compare the reward after RL and the
    increase."""
    names = select_held_out_rewards(recipe.curves)
    modes = {name: found for name in names if (found := evaluations_of(series, name))}
    kinds = QUANTITIES if is_whole else (BEFORE,)
    for kind, (name, pair) in itertools.product(kinds, modes.items()):
        values, errors = zip(*(_quantity(kind, seed) for seed in recipe.evaluations(name)), strict=True)
        middle, half = fmean(values), level_half(values, fmean(errors), len(modes) * len(kinds))
        yield Comparison(f"{name}, {kind}", _quantity(kind, pair)[0], middle - half, middle + half)


def _quantity(kind: str, pair: tuple[Mean, Mean]) -> Mean:
    """Return the quantity `kind` of `QUANTITIES` and its standard error, from a run's first and last evaluation."""
    terms = [*zip(QUANTITIES[kind], pair, strict=True)]
    value = sum(factor * mean for factor, (mean, _) in terms)
    return value, math.hypot(*(factor * error for factor, (_, error) in terms))
