import json
import math

import pytest

from slimrl.errors import UserError
from slimrl.monitor.sinks import JsonlSink, Monitor, read_metrics


class ListSink:
    def __init__(self):
        self.lines, self.closed = [], []

    def write(self, step, metrics):
        self.lines.append((step, dict(metrics)))

    def close(self, failed=False):
        self.closed.append(failed)


def log_steps(path, steps, first_step=0):
    with Monitor([JsonlSink(path, first_step)]) as monitor:
        for step in steps:
            monitor.log(step, {"reward/mean": step / 3, "time/step_s": 1.0})


def test_monitor_hands_every_metric_to_every_sink_and_closes_all_even_if_one_fails_to():
    class FullSink(ListSink):
        def close(self, failed=False):
            raise UserError("the disk is full")

    first, last = ListSink(), ListSink()
    with pytest.raises(UserError), Monitor([first, FullSink(), last]) as monitor:
        monitor.log(3, {"reward/mean": 1, "env/num_words": 2.5})
    for sink in (first, last):
        assert sink.lines == [(3, {"reward/mean": 1.0, "env/num_words": 2.5})] and sink.closed == [False]


def test_unregistered_name_is_refused_before_anything_is_written():
    sink = ListSink()
    with pytest.raises(ValueError, match="Did you mean `reward/mean`"), Monitor([sink]) as monitor:
        monitor.log(0, {"loss/policy": 0.0, "reward/meen": 1.0})
    assert sink.lines == [] and sink.closed == [True]


def test_resumed_file_equals_an_uninterrupted_one(tmp_path):
    log_steps(tmp_path / "whole.jsonl", range(10))
    path = tmp_path / "resumed.jsonl"
    log_steps(path, range(7))
    with path.open("a") as file:
        file.write('{"step": 7, "reward/me')  # killed while writing; the last checkpoint was at step 4
    log_steps(path, range(4, 10), first_step=4)
    assert path.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    log_steps(path, range(1))  # a fresh run begins an empty file
    assert [step for step, _ in read_metrics(path)] == [0]


def test_nonfinite_numbers_are_valid_json_and_come_back(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with Monitor([JsonlSink(path)]) as monitor:
        monitor.log(
            0, {"loss/policy": math.nan, "loss/ratio_max": math.inf, "reward/min": -math.inf, "reward/mean": 0.1}
        )
    record = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert record["loss/policy"] is None
    assert record["nonfinite"] == {"loss/policy": "nan", "loss/ratio_max": "inf", "reward/min": "-inf"}
    [(step, metrics)] = read_metrics(path)
    assert (step, metrics["reward/mean"], metrics["loss/ratio_max"]) == (0, 0.1, math.inf)
    assert math.isnan(metrics["loss/policy"])
