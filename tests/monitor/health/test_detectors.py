"""Each detector on made-up curves: what is healthy and looks odd, and what is not healthy.

`curves.jsonl` has the curves: `0.5*20 0.1` are 20 values and another one, `0.2..0.7` is a line of `NUM` values, and
`0.2@29` is a value at a step. `is_bad` is null if the detector finds nothing.
"""

import json
from pathlib import Path

import pytest

from slimrl.config.monitors import MonitorsConfig
from slimrl.monitor.health.catalogue import MONITORS
from slimrl.monitor.health.history import History

DETECT = {monitor.name: monitor.look for monitor in MONITORS}
NUM = 30
MEANS = {"flat": "0.4*30", "rising": "0.2..0.7", "solved": "0.5..0.98", "better": "0.2*20 0.6*10"}
REWARDS = {
    **{name: {"reward/min": "0*30", "reward/max": "1*30", "reward/mean": mean} for name, mean in MEANS.items()},
    "equal": {"reward/min": "0.5*5", "reward/max": "0.5*5", "reward/mean": "0.5*5"},
}
CASES = [json.loads(line) for line in Path(__file__).with_name("curves.jsonl").read_text("utf-8").splitlines()]


def values_of(curve: str) -> dict[int, float]:
    """The values of a curve by their steps."""
    values: dict[int, float] = {}
    for part in curve.split():
        if ".." in part:
            start, end = map(float, part.split(".."))
            values = {step: start + (end - start) * step / (NUM - 1) for step in range(NUM)}
        elif "@" in part:
            value, step = part.split("@")
            values[int(step)] = float(value)
        else:
            value, _, times = part.partition("*")
            values |= {len(values) + place: float(value) for place in range(int(times or 1))}
    return values


def detected(name: str, curves: dict[str, str], bounds: MonitorsConfig) -> bool | None:
    """Return True if the detector finds a fault at the last of the steps, None if it finds nothing."""
    history, tables = History(), {key: values_of(curve) for key, curve in curves.items()}
    for step in range(max(max(values, default=0) for values in tables.values()) + 1):
        history.add({key: values[step] for key, values in tables.items() if step in values})
    found = DETECT[name](history, bounds)
    return found and found.is_bad


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['monitor']}-{case.get('note', '')}")
def test_faults_are_told_from_what_looks_odd(case):
    curves = {**case["curves"], **REWARDS.get(case.get("rewards"), {})}
    assert detected(case["monitor"], curves, MonitorsConfig()) is case["is_bad"]


def test_every_detector_has_cases_and_a_bound_can_be_set():
    assert {case["monitor"] for case in CASES} == set(DETECT)
    gone = {"loss/entropy": "0.001*30", **REWARDS["flat"]}
    assert detected("entropy_collapse", gone, MonitorsConfig(min_entropy=1e-4)) is False


@pytest.mark.parametrize("name", DETECT)
def test_nothing_is_said_of_a_run_without_steps_or_without_the_metric(name):
    history = History()
    assert DETECT[name](history, MonitorsConfig()) is None
    history.add({"time/step_s": 1.0, "loss/policy": float("nan")})
    assert DETECT[name](history, MonitorsConfig()) is None
