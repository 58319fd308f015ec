"""Runs against the recorded seeds of their recipes: each seed against the others, and planted faults."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.learning.bands import BANDS, RECORDED, content_of, text_of
from slimrl.cli import run
from slimrl.config.reading.load import load
from slimrl.config.reading.saved import write_config
from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl.monitor.sinks import JsonlSink, Monitor
from slimrl_tools.curves.curve_check import REWARD, check_curve, compare
from slimrl_tools.curves.reference import all_recipes, reference_curves

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[4]
RECIPES = {recipe.name: recipe for recipe in all_recipes()}
SEEDS = [(name, seed) for name, recipe in RECIPES.items() for seed in range(recipe.num_seeds)]


def seed_of(recipe, number):
    return {name: series[number] for name, series in recipe.curves.items()}


def without(recipe, number):
    curves = {
        name: [series for at, series in enumerate(seeds) if at != number] for name, seeds in recipe.curves.items()
    }
    return replace(recipe, curves=curves, num_seeds=recipe.num_seeds - 1)


def write_run(directory, recipe, changes=(), series=None, num_steps=None):
    """A run's directory with the settings of the recipe, and with the metrics of its first seed."""
    write_config(load(RLConfig, ["@", str(ROOT / recipe.config_file), *changes], {}), directory)
    series = series or seed_of(recipe, 0)
    lines = {}
    for name, (steps, values) in series.items():
        for step, value in zip(steps.tolist(), values.tolist(), strict=True):
            lines.setdefault(step, {})[name] = value
    with Monitor([JsonlSink(directory / "metrics.jsonl")]) as monitor:
        for step in sorted(lines)[:num_steps]:
            monitor.log(step, lines[step])
    return directory


@pytest.mark.parametrize(("name", "number"), SEEDS)
def test_every_recorded_seed_behaves_like_the_others(name, number):
    check = compare(without(RECIPES[name], number), (), seed_of(RECIPES[name], number))
    assert check.verdict == "behaves", check.outside


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda one: one.name)
def test_the_band_files_are_what_the_results_give(recorded):
    assert (BANDS / f"{recorded.name}.json").read_text(encoding="utf-8") == text_of(content_of(recorded))


@pytest.mark.parametrize("name", ["reverse_text", "alphabet_sort", "wiki_search"])
def test_a_run_that_learns_nothing_is_below_the_band(tmp_path, name):
    recipe, rng = RECIPES[name], np.random.default_rng(0)
    series = seed_of(recipe, 0)
    steps, values = series[REWARD]
    flat = {REWARD: (steps, values[:3].mean() + rng.normal(0, 0.03, len(values)))}
    flat |= {key: (at, np.full_like(held, held[0])) for key, (at, held) in series.items() if "held_out/reward" in key}
    check = check_curve(write_run(tmp_path, recipe, series=series | flat))
    assert check.verdict == "differs"
    assert {one.direction for one in check.outside} == {"below"}
    assert any("rise by RL" in one.what for one in check.outside)


@pytest.mark.parametrize(
    ("changed", "direction", "steps"),
    [
        (lambda steps, values: np.where(steps >= 20, 0.1, values), "below", range(18, 22)),
        (lambda steps, values: np.minimum(1.0, values + 0.3), "above", [0]),
    ],
)
def test_where_a_curve_leaves_its_band_is_dated(tmp_path, changed, direction, steps):
    recipe = RECIPES["reverse_text"]
    series = seed_of(recipe, 2)
    series[REWARD] = series[REWARD][0], changed(*series[REWARD])
    check = check_curve(write_run(tmp_path, recipe, series=series))
    [curve] = [one for one in check.outside if one.what == REWARD]
    assert curve.direction == direction and curve.step in steps


def test_a_run_that_is_going_on_is_compared_as_far_as_it_is(tmp_path, capsys):
    directory = write_run(tmp_path, RECIPES["wordle"], num_steps=4)
    assert run(["check-curve", str(directory)]) == 0
    shown = capsys.readouterr().out
    assert "behaves like 3 recorded seeds of examples/wordle/rl.toml" in shown
    assert "4 of 60 steps are there" in shown and "after RL" not in shown


def test_other_settings_make_the_comparison_void_and_are_named(tmp_path, capsys):
    changes = ["--trainer.optim.lr", "1e-3", "--eval.num_examples", "8", "--seed", "9", "--model.num_threads", "1"]
    changes += ["--monitors.enabled", "false", "--inference.port", "8011", "--trainer.guard.max_logprob_gap", "9"]
    directory = write_run(tmp_path, RECIPES["reverse_text"], changes)
    differences = [(one.key, one.loose) for one in check_curve(directory).differences]
    assert differences == [("trainer.optim.lr", False), ("eval.num_examples", True)]
    assert run(["check-curve", str(directory)]) == 2
    assert "trainer.optim.lr = 0.001 instead of 2e-05" in capsys.readouterr().out


def test_what_cannot_be_compared_is_a_clear_error(tmp_path):
    with pytest.raises(UserError, match=r"no config\.toml"):
        check_curve(tmp_path)
    env = """[{id="tests/x.py:Own"}]"""
    write_config(load(RLConfig, ["--orchestrator.env", env], {}), tmp_path / "own")
    with pytest.raises(UserError, match=r"nothing is recorded of that.*examples/reverse_text/rl\.toml"):
        check_curve(tmp_path / "own")
    recipe = RECIPES["reverse_text"]
    with pytest.raises(UserError, match="no training step yet"):
        check_curve(write_run(tmp_path / "new", recipe, series={"held_out/num": recipe.curves["held_out/num"][0]}))


def test_the_viewer_gets_bands_of_the_recipe_for_runs_of_its_subject(tmp_path):
    recipe = RECIPES["wordle"]
    found = reference_curves(write_run(tmp_path / "a", recipe, ["--trainer.optim.lr", "1e-4"]))
    assert (found["recipe"], found["differs"]) == ("wordle", ["trainer.optim.lr = 0.0001 instead of 2e-05"])
    curve = found["curves"][REWARD]
    assert len(curve["steps"]) == len(curve["low"]) == len(curve["mid"]) == len(curve["high"]) == 60
    assert all(low < mid < high for low, mid, high in zip(curve["low"], curve["mid"], curve["high"], strict=True))
    assert found["curves"]["held_out/reward_greedy"]["steps"] == [0, 60]
    assert "held_out/reward_greedy_low" not in found["curves"]
    json.dumps(found, allow_nan=False)
    env = """[{id="wordle", args={num_answers=7}}]"""
    assert reference_curves(write_run(tmp_path / "b", recipe, ["--orchestrator.env", env])) is None
    assert reference_curves(tmp_path) is None


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_a_recipe_as_it_stands_is_recognised_without_a_difference(tmp_path, recipe):
    assert check_curve(write_run(tmp_path, recipe)).differences == []
