"""Checks from a run's files whether the run behaves like the recorded runs (seeds) of its recipe.

The check compares the training reward at every step, the held-out rewards before and after RL, and their increase.
Other metrics, such as the entropy, do not affect the verdict. If they leave their bands, they hint at causes. The
verdict is wrong for about one in a hundred normal runs (`tolerance.CHANCE`).
"""

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
from slimrl_tools.curves.tolerance import Band, Level, curve_band, level_halves

REWARD = "reward/mean"
# Other metrics, each with the meaning of values below and above its band.
SIDE_METRICS = {
    "loss/entropy": (
        "the policy says the same ever more, as after steps that are too large",
        "it becomes surer more slowly, as with steps that are too small, or not at all",
    ),
    "rollout/truncated": ("", "replies are cut off before their end: `sampling.max_tokens`, `stop`, `seq_len`"),
    "rollout/tokens_sampled_mean": ("replies are shorter than recorded", "replies are longer than recorded"),
    "reward/zero_signal_groups": (
        "groups differ more than recorded",
        "all attempts at a task earn the same: nothing to learn from",
    ),
    "optim/grad_norm": ("gradients are smaller than recorded", "gradients are larger than recorded"),
}
MISMATCH = "guard/mismatch_kl"
HEALTHY_MISMATCH = 0.01
EARLY = 5  # the first fifth of the recipe's steps counts as early
Verdict = Literal["behaves", "differs", "void"]
BEFORE, RISE = "before RL", "rise by RL"
# Each compared number is a weighted sum of a run's first and last evaluation, with these two factors.
QUANTITIES = {BEFORE: (1, 0), "after RL": (0, 1), RISE: (-1, 1)}


@dataclass(frozen=True, slots=True)
class Finding:
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
    """The result of the comparison of a run with its recipe. `blind` is True if the recorded runs differ so much that a
    run without learning could pass."""

    recipe: Recipe
    verdict: Verdict
    num_steps: int
    differences: Sequence[Difference]
    findings: Sequence[Finding]
    causes: Sequence[str]
    blind: bool

    @property
    def outside(self) -> list[Finding]:
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
    is_whole = series[REWARD][0][-1] + 1 >= recipe.num_steps and "max_steps" not in {one.key for one in differs}
    reward = _compare_curve(recipe, REWARD, series)
    levels = list(_compare_held_out(recipe, series, is_whole, "eval.num_examples" in {one.key for one in differs}))
    outside = [one for one in (reward, *levels) if one.direction != "inside"]
    void = any(not one.loose for one in differs)
    return CurveCheck(
        recipe=recipe,
        verdict="void" if void else "differs" if outside else "behaves",
        num_steps=len(series[REWARD][0]),
        differences=differs,
        findings=(reward, *levels),
        causes=tuple(_causes(recipe, series, outside)) if outside else (),
        blind=_band_of(recipe, REWARD).is_blind and not any(RISE in one.what and one.low > 0 for one in levels),
    )


def _recipe_of(run_dir: Path) -> tuple[Recipe, list[Difference]]:
    config = read_run_config(run_dir)
    if found := recognise(config):
        return found
    known = ", ".join(f"`slimrl rl @ {recipe.config_file}`" for recipe in all_recipes())
    ids = sorted({env.id for env in config.orchestrator.env}) if isinstance(config, RLConfig) else []
    what = f"trains on {', '.join(ids)}" if ids else f"is a run of `slimrl {config.command}`"
    raise UserError(f"{run_dir} {what}, and nothing is recorded of that. Recorded are {known}.")


def _band_of(recipe: Recipe, name: str) -> Band:
    return curve_band(recipe.align(name)[1])


def _compare_curve(recipe: Recipe, name: str, series: Mapping[str, Series]) -> Finding:
    """Compare a run's curve with its band, over the steps that run and recipe have in common."""
    steps, own_S = series[name]
    recorded_S, values_RS = recipe.align(name)
    shared_S = np.intersect1d(steps, recorded_S)
    rows_RS = values_RS[:, np.isin(recorded_S, shared_S)]
    # Estimate the band's width from all steps of the recipe, because the first steps of a run are too few.
    whole = _band_of(recipe, name)
    smoothed_RS = np.array([smooth(row, whole.reach) for row in rows_RS])
    band = Band(smoothed_RS.mean(axis=0), whole.half, whole.reach)
    smoothed_S = smooth(own_S[np.isin(steps, shared_S)], band.reach)
    outside = np.flatnonzero((smoothed_S < band.low_S) | (smoothed_S > band.high_S))
    at = outside[0] if len(outside) else -1
    return Finding(name, float(smoothed_S[at]), float(band.low_S[at]), float(band.high_S[at]), int(shared_S[at]))


def _compare_held_out(
    recipe: Recipe, series: Mapping[str, Series], is_whole: bool, other_tasks: bool
) -> Iterator[Finding]:
    """Compare the held-out reward before RL with its band. If `is_whole`, also compare the reward after RL and the
    increase. If `other_tasks`, the run was evaluated on other tasks than the recorded runs."""
    names = select_held_out_rewards(recipe.curves)
    modes = {name: found for name in names if (found := evaluations_of(series, name))}
    kinds = QUANTITIES if is_whole else (BEFORE,)
    for kind in kinds if modes else ():
        seeds = {name: [_quantity(kind, pair) for pair in recipe.evaluations(name)] for name in modes}
        levels = [Level([value for value, _ in one], fmean(error for _, error in one)) for one in seeds.values()]
        extra = [level.error if other_tasks else 0.0 for level in levels]
        halves = level_halves(levels, extra, len(modes) * len(kinds))
        for (name, pair), level, half in zip(modes.items(), levels, halves, strict=True):
            yield Finding(f"{name}, {kind}", _quantity(kind, pair)[0], level.mid - half, level.mid + half)


def _quantity(kind: str, pair: tuple[Mean, Mean]) -> Mean:
    """Return the quantity `kind` of `QUANTITIES` and its standard error, from a run's first and last evaluation."""
    terms = [*zip(QUANTITIES[kind], pair, strict=True)]
    value = sum(factor * mean for factor, (mean, _) in terms)
    return value, math.hypot(*(factor * error for factor, (_, error) in terms))


def _causes(recipe: Recipe, series: Mapping[str, Series], outside: Sequence[Finding]) -> Iterator[str]:
    """Yield likely reasons why values left their bands, the most informative reason first."""
    if MISMATCH in series and np.nanmax(series[MISMATCH][1]) > HEALTHY_MISMATCH:
        worst = int(series[MISMATCH][0][np.nanargmax(series[MISMATCH][1])])
        yield f"{MISMATCH} reaches {np.nanmax(series[MISMATCH][1]):.2g} at step {worst}: sampler and trainer disagree"
    if any(BEFORE in one.what for one in outside):
        yield "the evaluation before RL differs already: the model, its chat template, the warm-up or the environment"
    for name, meanings in SIDE_METRICS.items():
        if name in series and name in recipe.curves:
            found = _compare_curve(recipe, name, series)
            if found.direction != "inside":
                meaning = meanings[found.direction == "above"]
                yield f"{name} is {found.direction} its band from step {found.step} on ({found.value:.3g}): {meaning}"
    curve = next((one for one in outside if one.what == REWARD), None)
    if curve and curve.step is not None and curve.step < recipe.num_steps // EARLY:
        yield "the reward is outside from the beginning: the environment or its reward, the model, or the warm-up"
    elif curve and curve.direction == "below":
        yield "the reward falls behind while training: the learning rate, the advantages, the loss, or stale weights"
    elif curve:
        yield "the reward is higher than recorded: read rollouts for a trick, and look whether splits share tasks"
