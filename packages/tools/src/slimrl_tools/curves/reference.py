"""Reads the recorded curves of the recipes from `bands/NAME.json` in this package, and finds the recipe of a run.

`benchmarks/learning/bands.py` writes these files. The viewer calls `reference_curves`, and `curves/curve_check.py`
compares runs with the recipes. This module needs no PyTorch.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from slimrl.config.base import CommandConfig
from slimrl.config.reading.saved import NO_RECIPE, flat_settings, read_run_config
from slimrl.config.run import COMMANDS
from slimrl.errors import UserError
from slimrl.io.files import without_nan
from slimrl.monitor.metrics import select_held_out_rewards
from slimrl.monitor.series import Series, common_steps
from slimrl.stats import Z_95
from slimrl_tools.curves.tolerance import curve_band

# A run may differ from its recipe in these settings. The comparison is then reported as loose.
LOOSE = re.compile(
    r"max_steps|max_async_level|eval\..*|orchestrator\.episode_timeout_s|inference\.backend"
    r"|model\.(dtype|date)"
)
# Settings that affect the results only through rounding.
SAME_NUMBERS = re.compile(
    r"trainer\.(micro_batch_tokens|activation_checkpointing)|orchestrator\.env\.\d+\.(worker\..*|worker)"
    r"|inference\.graphs"
)
# Settings that define the subject of a recipe: its environments and its model. A run with the same subject may be shown
# beside the recipe's curves, even if its other settings differ.
SUBJECT = re.compile(r"orchestrator\.env\.\d+\.(id|args\..*)|model\.name")
ENVIRONMENT = re.compile(r"orchestrator\.env\.\d+\.id")
Mean = tuple[float, float]  # a mean and its standard error


@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe with its recorded runs, one per seed. `source` is the directory of these runs. `curves` maps each metric
    to one series per run."""

    name: str
    config_file: str
    source: str
    settings: CommandConfig
    num_seeds: int
    curves: Mapping[str, Sequence[Series]]

    @property
    def num_steps(self) -> int:
        """Return the number of training steps of the recorded runs."""
        return len(self.curves["reward/mean"][0][0])

    def align(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the steps at which all recorded runs have the metric `name`, and its values with one row per run."""
        return common_steps(self.curves[name])

    def evaluations(self, name: str) -> list[tuple[Mean, Mean]]:
        """Return the first and last evaluation of each recorded run by the metric `name` (see `evaluations_of`)."""
        seeds = [{key: rows[number] for key, rows in self.curves.items()} for number in range(self.num_seeds)]
        return [found for seed in seeds if (found := evaluations_of(seed, name))]


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting that differs between a run and its recipe. If the difference is `loose`, the run can still be
    compared."""

    key: str
    recipe: Any
    run: Any
    loose: bool

    def __str__(self) -> str:
        return f"{self.key} = {_show(self.run)} instead of {_show(self.recipe)}"


@cache
def all_recipes() -> tuple[Recipe, ...]:
    """Return all recorded recipes, sorted by name."""
    found = [one for one in (files("slimrl_tools.curves") / "bands").iterdir() if one.name.endswith(".json")]
    return tuple(_parse(one.read_text(encoding="utf-8")) for one in sorted(found, key=lambda one: one.name))


def _parse(text: str) -> Recipe:
    content = json.loads(text)
    curves = {
        name: [
            (np.array(steps), np.array([np.nan if value is None else value for value in values], dtype=float))
            for steps, values in seeds
        ]
        for name, seeds in content["curves"].items()
    }
    settings = COMMANDS[content["command"]].model_validate_json(json.dumps(content["settings"]))
    return Recipe(
        content["recipe"], content["config"], content["source"], settings, len(content["seeds"]), curves
    )  # fmt: skip


def recognise(config: CommandConfig) -> tuple[Recipe, list[Difference]] | None:
    """Return the recorded recipe that is nearest to a run's settings, and the differences between them. Return None if
    no recipe has the same environments."""
    of_same_tasks = [recipe for recipe in all_recipes() if _environments(recipe.settings) == _environments(config)]
    compared = [(recipe, differences(recipe, config)) for recipe in of_same_tasks]
    return min(compared, key=lambda one: (sum(not found.loose for found in one[1]), len(one[1])), default=None)


def differences(recipe: Recipe, config: CommandConfig) -> list[Difference]:
    """Return the settings in which a run differs from a recipe; differences that prevent a comparison are first."""
    theirs, own = flat_settings(recipe.settings), flat_settings(config)
    found = [
        Difference(key, theirs.get(key), own.get(key), LOOSE.fullmatch(key) is not None)
        for key in sorted(theirs.keys() | own.keys())
        if theirs.get(key) != own.get(key)
        and not NO_RECIPE.fullmatch(key)
        and not SAME_NUMBERS.fullmatch(key)
        # An `auto` that is not resolved yet counts as 0.
        and not (key == "max_async_level" and {theirs.get(key), own.get(key)} <= {"auto", 0})
    ]
    return sorted(found, key=lambda one: one.loose)


def reference_curves(run_dir: Path) -> dict[str, Any] | None:
    """Return the recorded curves of a run's recipe:

        {"recipe", "source", "differs", "curves": {metric: {"steps", "low", "mid", "high"}}}

    A run of the recipe stays between `low` and `high`; `differs` names the settings in which this run differs from it.
    Return None if the run has no settings, or no recipe has the same model, environment and `args`.
    """
    try:
        found = recognise(read_run_config(run_dir))
    except UserError:
        return None
    if found is None or any(SUBJECT.fullmatch(one.key) for one in found[1]):
        return None
    recipe, differs = found
    curves = {name: curve for name in recipe.curves if (curve := _reference_curve(recipe, name))}
    return {
        "recipe": recipe.name, "source": recipe.source, "differs": [str(one) for one in differs], "curves": curves,
    }  # fmt: skip


def evaluations_of(series: Mapping[str, Series], name: str) -> tuple[Mean, Mean] | None:
    """Return a run's first and last evaluation by the metric `name`, such as `held_out/reward_greedy`. Each is a mean
    with its standard error, which is 0 if the run logged no interval. Return None if the run lacks the metric."""
    if name not in series:
        return None
    steps, means = series[name]
    low, high = (_values_at(series.get(f"{name}_{end}"), steps) for end in ("low", "high"))
    errors = np.nan_to_num((high - low) / (2 * Z_95))
    first, last = ((float(means[at]), float(errors[at])) for at in (0, -1))
    return first, last


def _values_at(series: Series | None, steps: np.ndarray) -> np.ndarray:
    found = dict(zip(*(column.tolist() for column in series), strict=True)) if series else {}
    return np.array([found.get(step, math.nan) for step in steps.tolist()])


def _reference_curve(recipe: Recipe, name: str) -> dict[str, list[Any]] | None:
    """Return a metric's band as lists, or None for a held-out metric that is not a mean reward. A held-out reward has
    few steps, so its band is the range of the recorded values."""
    is_held_out = name.startswith("held_out/")
    if is_held_out and not select_held_out_rewards([name]):
        return None
    steps, values_RS = recipe.align(name)
    if is_held_out:
        rows = (values_RS.min(axis=0), values_RS.mean(axis=0), values_RS.max(axis=0))
    else:
        band = curve_band(values_RS)
        rows = (band.low_S, band.mid_S, band.high_S)
    numbers = [without_nan(np.round(row, 6).tolist()) for row in rows]
    return {"steps": steps.tolist(), **dict(zip(("low", "mid", "high"), numbers, strict=True))}


def _environments(config: CommandConfig) -> list[str]:
    return sorted(value for key, value in flat_settings(config).items() if ENVIRONMENT.fullmatch(key))


def _show(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)
