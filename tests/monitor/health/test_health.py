"""Alarms: raised once, written, said, and taken up again by a resumed run."""

import json
from pathlib import Path

import pytest

from slimrl.config.monitors import BOUNDS, MONITOR_NAMES, MonitorsConfig
from slimrl.monitor.health.catalogue import MONITORS
from slimrl.monitor.health.health import CLEAR, Health, HealthWatch
from slimrl.monitor.sinks import JsonlSink, Monitor, read_metrics
from tests.monitor.pages import render_monitors

ROOT = Path(__file__).parents[3]
ZERO = "reward/zero_signal_groups"


def row(share):
    return {ZERO: share, "reward/mean": 0.3, "reward/min": 0.0, "reward/max": 1.0}


def alarms_of(config, shares):
    health = Health(config)
    return [(alarm.step, alarm.onset) for step, share in enumerate(shares) for alarm in health.look(step, row(share))]


def run(path, shares, config=None, first=0):
    """Log steps as a run does that goes on from step `first`. Returns what was said."""
    said = []
    file = path / "metrics.jsonl"
    past = [line for line in read_metrics(file) if line[0] < first] if first else []
    watch = HealthWatch(config or MonitorsConfig(), path / "monitors.jsonl", past, said.append)
    with Monitor([JsonlSink(file, first)], [watch]) as monitor:
        for step in range(first, len(shares)):
            monitor.log(step, row(shares[step]))
    return said


def test_an_alarm_is_raised_once_with_its_onset_and_again_after_it_was_away():
    shares = [0.2] * 6 + [1.0] * 12 + [0.2] * 16 + [1.0] * 12
    first, second = alarms_of(MonitorsConfig(), shares)
    assert 6 <= first[1] < first[0] <= 12 and 34 <= second[1] < second[0] <= 40
    for lull, num in ((2, 1), (CLEAR, 2)):
        assert len(alarms_of(MonitorsConfig(), [1.0] * 10 + [0.2] * lull + [1.0] * 10)) == num
    assert alarms_of(MonitorsConfig(off=["zero_signal"]), [1.0] * 20) == []


def test_an_alarm_is_a_line_of_the_file_a_line_of_the_console_and_a_number(tmp_path):
    said = run(tmp_path, [0.2] * 3 + [1.0] * 10)
    (line,) = map(json.loads, (tmp_path / "monitors.jsonl").read_text().splitlines())
    assert set(line) == {"step", "onset", "monitor", "metric", "value", "healthy", "cause", "knob", "message"}
    assert (line["monitor"], line["metric"], line["value"]) == ("zero_signal", ZERO, 1.0)
    assert len(said) == 1 and said[0].startswith(f"alarm, step {line['step'] + 1}: zero_signal: 100% of the groups")
    counts = [metrics["monitor/alarms"] for _, metrics in read_metrics(tmp_path / "metrics.jsonl")]
    assert counts == [float(step >= line["step"]) for step in range(13)]


def test_a_resumed_run_writes_what_an_uninterrupted_one_does(tmp_path):
    shares = [0.2] * 3 + [1.0] * 12 + [0.2] * 10 + [1.0] * 10
    run(tmp_path / "whole", shares)
    for resumed_at in (4, 8, 20):
        path = tmp_path / str(resumed_at)
        run(path, shares[: resumed_at + 7])  # the checkpoint is older than the last step
        said = run(path, shares, first=resumed_at)
        for name in ("metrics.jsonl", "monitors.jsonl"):
            assert (path / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
        steps = [json.loads(line)["step"] for line in (path / "monitors.jsonl").read_text().splitlines()]
        assert len(said) == sum(step >= resumed_at for step in steps)  # nothing is said twice


def test_each_bound_belongs_to_a_monitor_and_each_monitor_has_one():
    fields = set(MonitorsConfig.model_fields) - {"enabled", "off"}
    assert set(BOUNDS) == fields and set(BOUNDS.values()) == set(MONITOR_NAMES)


def test_the_documented_table_is_that_of_the_code():
    assert render_monitors() in (ROOT / "docs" / "monitors.md").read_text(encoding="utf-8"), (
        "put the output of python -m tests.monitor.pages monitors into docs/monitors.md"
    )
    assert all(one.meaning and one.healthy and one.cause and one.knob for one in MONITORS)


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks" / "results").rglob("metrics.jsonl")), ids=str)
def test_no_recorded_run_raises_an_alarm(path):
    health = Health(MonitorsConfig())
    assert [alarm for step, metrics in read_metrics(path) for alarm in health.look(step, metrics)] == []


def test_a_damaged_file_of_alarms_keeps_no_run_from_going_on(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "reward/mean": 0.5}\n')
    for content in ('{"no": "step"}\n', "no JSON\n{}\n", '{"step": "1"}\n'):
        (tmp_path / "monitors.jsonl").write_text(content)
        run(tmp_path, [0.2, 0.2], first=1)
        assert (tmp_path / "monitors.jsonl").read_text() == ""
