from pathlib import Path

import pytest

from slimrl.eval.evaluate import mode_of
from slimrl.monitor.metrics import GROUPS, METRICS, lookup, select_held_out_rewards
from tests.monitor.pages import render_metrics

ROOT = Path(__file__).parents[2]


def test_docs_are_what_the_registry_renders():
    assert (ROOT / "docs/metrics.md").read_text() == render_metrics(), (
        "run: python -m tests.monitor.pages > docs/metrics.md"
    )


def test_every_metric_is_unique_and_its_group_is_described():
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    assert {metric.group for metric in METRICS} == set(GROUPS)
    assert all(metric.meaning and metric.unit for metric in METRICS)


ENTRIES = {
    "reward/mean": "reward/mean",
    "drop/timeout": "drop/<reason>",
    "env/num/words": "env/<name>",
    "held_out/reward_sampled_0.7": "held_out/reward_sampled_<T>",
    "held_out/reward_sampled_low": "held_out/reward_sampled_low",
    "held_out/exact_greedy": "held_out/exact_<mode>",
    "held_out/accuracy": "held_out/<score>",
}


def test_a_name_finds_its_own_line_or_the_nearest_family_or_is_an_error_that_names_a_known_one():
    assert {name: lookup(name).name for name in ENTRIES} == ENTRIES
    for name in ("reward/men", "drop/", "env", "", "reward/mean "):
        with pytest.raises(ValueError, match=r"Known: .*reward/mean"):
            lookup(name)


def test_held_out_rewards_are_the_means_at_every_temperature_without_their_intervals():
    modes = [mode_of(temperature) for temperature in (0.0, 1.0, 0.7, 1e-5)]
    names = [f"held_out/reward_{mode}" for mode in modes]
    ends = [f"{name}_{end}" for name in names for end in ("low", "high")]
    assert select_held_out_rewards([*names, *ends, "held_out/num", "held_out/exact_greedy", "reward/mean"]) == names
