import json

import pytest

from slimrl.config.monitors import MONITOR_NAMES
from slimrl_view.monitors import Monitors


def write(run, *records, settings=""):
    run.mkdir(exist_ok=True)
    (run / "config.toml").write_text(f"# slimrl rl @ config.toml\n{settings}")
    with (run / "metrics.jsonl").open("a") as file:
        file.writelines(f"{json.dumps(record)}\n" for record in records)


def named(monitors):
    return {one["monitor"]: one for one in monitors.all()}


def test_each_monitor_has_its_latest_value_and_its_bounds(tmp_path):
    run = tmp_path / "a"
    write(run, *({"step": step, "monitor/repetition": 0.1 * step} for step in range(4)))
    monitors = Monitors(run)
    found = named(monitors)
    assert tuple(found) == MONITOR_NAMES
    repetition = found["repetition"]
    assert (repetition["metric"], repetition["step"]) == ("monitor/repetition", 3)
    assert repetition["value"] == pytest.approx(0.2)  # the mean of the last three steps
    assert repetition["bounds"] == [["max_repetition", 0.4]] and "below 0.4" in repetition["healthy"]
    assert (found["judge"]["value"], found["judge"]["step"], found["judge"]["off"]) == (None, None, False)
    assert json.dumps(monitors.all(), allow_nan=False)
    write(run, {"step": 4, "monitor/repetition": 0.4}, {"step": 4, "held_out/num": 2})
    assert (named(monitors)["repetition"]["value"], named(monitors)["repetition"]["step"]) == (pytest.approx(0.3), 4)


def test_the_runs_own_bounds_and_switches_count(tmp_path):
    run = tmp_path / "a"
    # `stop` is a setting of earlier versions.
    steps = ({"step": step, "monitor/repetition": 0.3 * (step > 0)} for step in range(9))
    write(run, *steps, settings='[monitors]\nmax_repetition = 0.2\noff = ["length"]\nstop = []\n')
    found = named(Monitors(run))
    assert found["repetition"]["bounds"] == [["max_repetition", 0.2]] and found["repetition"]["raised"]
    assert found["length"]["off"] and not found["judge"]["off"]
    write(tmp_path / "b", settings="[monitors]\nenabled = false\n")
    assert all(one["off"] for one in Monitors(tmp_path / "b").all())


def test_settings_and_metrics_that_are_none_are_passed_over(tmp_path):
    run = tmp_path / "a"
    damaged = {"step": "x"}, {"step": 1, "loss/entropy": "high", "monitor/repetition": None, "env/x": 10**400}
    write(run, *damaged, settings="[monitors]\nmax_repetition = 9\nunknown = 1\n")
    found = named(Monitors(run))
    assert found["repetition"]["bounds"] == [["max_repetition", 0.4]] and found["repetition"]["value"] is None
    (run / "metrics.jsonl").unlink()
    assert named(Monitors(run))["repetition"]["value"] is None
