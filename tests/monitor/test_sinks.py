import json
import math
import sys
from types import SimpleNamespace

import pytest

from slimrl.errors import UserError
from slimrl.monitor.sinks import JsonlSink, Monitor, WandbSink, read_metrics


class ListSink:
    def __init__(self):
        self.lines, self.closed = [], []

    def write(self, step, metrics):
        self.lines.append((step, dict(metrics)))

    def close(self, failed=False):
        self.closed.append(failed)


class FullSink(ListSink):
    def close(self, failed=False):
        raise UserError("the disk is full")


def log_steps(path, steps, first_step=0):
    with Monitor([JsonlSink(path, first_step)]) as monitor:
        for step in steps:
            monitor.log(step, {"reward/mean": step / 3, "time/step_s": 1.0})


def test_monitor_hands_every_metric_to_every_sink():
    sinks = [ListSink(), ListSink()]
    with Monitor(sinks) as monitor:
        monitor.log(3, {"reward/mean": 1, "env/num_words": 2.5})
    assert [sink.lines for sink in sinks] == [[(3, {"reward/mean": 1.0, "env/num_words": 2.5})]] * 2
    assert [sink.closed for sink in sinks] == [[False]] * 2


def test_unregistered_name_is_refused_before_anything_is_written():
    sink = ListSink()
    with pytest.raises(ValueError, match="Did you mean `reward/mean`"), Monitor([sink]) as monitor:
        monitor.log(0, {"loss/policy": 0.0, "reward/meen": 1.0})
    assert sink.lines == []
    assert sink.closed == [True]


def test_every_sink_is_closed_even_if_one_fails_to():
    first, last = ListSink(), ListSink()
    with pytest.raises(UserError):
        Monitor([first, FullSink(), last]).close()
    assert (first.closed, last.closed) == ([False], [False])


def test_resumed_file_equals_an_uninterrupted_one(tmp_path):
    log_steps(tmp_path / "whole.jsonl", range(10))
    path = tmp_path / "resumed.jsonl"
    log_steps(path, range(7))
    with path.open("a") as file:
        file.write('{"step": 7, "reward/me')  # killed while writing; the last checkpoint was at step 4
    log_steps(path, range(4, 10), first_step=4)
    assert path.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_fresh_run_starts_an_empty_file(tmp_path):
    log_steps(tmp_path / "metrics.jsonl", range(5))
    log_steps(tmp_path / "metrics.jsonl", range(1))
    assert [step for step, _ in read_metrics(tmp_path / "metrics.jsonl")] == [0]


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


class FakeWandb:
    """What WandbSink uses of the wandb module; `break_on` names the call that fails."""

    Settings = SimpleNamespace

    def __init__(self, break_on=""):
        self.break_on, self.calls = break_on, []

    def _call(self, name, value=None):
        if name == self.break_on:
            raise RuntimeError("network is\nunreachable")
        self.calls.append((name, value))

    def init(self, **options):
        self._call("init", options)
        return SimpleNamespace(
            define_metric=lambda name, step_metric=None: None,
            log=lambda metrics: self._call("log", metrics),
            finish=lambda exit_code: self._call("finish", exit_code),
        )


def wandb_sink(monkeypatch, fake, tmp_path, resume=False):
    monkeypatch.setitem(sys.modules, "wandb", fake)
    notes = []
    return WandbSink(tmp_path, {"project": "slimrl", "entity": "", "config": {}}, notes.append, resume), notes


def test_wandb_gets_the_metrics_with_their_step(monkeypatch, tmp_path):
    fake = FakeWandb()
    sink, notes = wandb_sink(monkeypatch, fake, tmp_path)
    sink.write(4, {"reward/mean": 0.5})
    sink.close(failed=True)
    assert fake.calls[0][1].keys() == {
        "id",
        "resume",
        "dir",
        "settings",
        "project",
        "config",
    }  # an empty entity is left out
    assert fake.calls[1:] == [("log", {"step": 4, "reward/mean": 0.5}), ("finish", 1)]
    assert notes == []


def test_resumed_run_goes_on_in_the_same_wandb_run(monkeypatch, tmp_path):
    fakes = FakeWandb(), FakeWandb(), FakeWandb()
    for fake, resume in zip(fakes, (False, True, False), strict=True):
        wandb_sink(monkeypatch, fake, tmp_path, resume)
    ids = [fake.calls[0][1]["id"] for fake in fakes]
    assert ids[0] == ids[1] != ids[2]


@pytest.mark.parametrize("break_on", ["init", "log", "finish"])
def test_wandb_failure_is_said_once_and_stops_nothing(monkeypatch, tmp_path, break_on):
    sink, notes = wandb_sink(monkeypatch, FakeWandb(break_on), tmp_path)
    for step in range(3):
        sink.write(step, {"reward/mean": 0.5})
    sink.close()
    assert len(notes) == 1
    assert "network is unreachable" in notes[0]


def test_missing_wandb_names_the_extra(monkeypatch, tmp_path):
    with pytest.raises(UserError, match="uv sync --inexact --extra wandb"):
        wandb_sink(monkeypatch, None, tmp_path)
