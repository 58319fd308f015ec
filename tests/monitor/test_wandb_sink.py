"""Weights & Biases, by a stand-in of its module."""

import sys
from types import SimpleNamespace

import pytest

from slimrl.errors import UserError
from slimrl.monitor.wandb_sink import WandbSink


class FakeWandb:
    """The part of the module wandb that the sink uses; `break_on` names the call that fails."""

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


def sink_of(monkeypatch, fake, tmp_path, resume=False):
    monkeypatch.setitem(sys.modules, "wandb", fake)
    notes = []
    return WandbSink(tmp_path, {"project": "slimrl", "entity": "", "config": {"seed": 3}}, resume, notes.append), notes


def test_metrics_are_logged_with_their_step_and_a_resumed_run_goes_on_in_the_same_run(monkeypatch, tmp_path):
    fakes = FakeWandb(), FakeWandb(), FakeWandb()
    for fake, resume in zip(fakes, (False, True, False), strict=True):
        sink, notes = sink_of(monkeypatch, fake, tmp_path, resume)
        sink.write(4, {"reward/mean": 0.5})
        sink.close(failed=True)
        # An empty entity is left out.
        assert fake.calls[0][1].keys() == {"id", "resume", "dir", "settings", "project", "config"}
        assert fake.calls[1:] == [("log", {"step": 4, "reward/mean": 0.5}), ("finish", 1)] and notes == []
    ids = [fake.calls[0][1]["id"] for fake in fakes]
    assert ids[0] == ids[1] != ids[2]


@pytest.mark.parametrize("break_on", ["init", "log", "finish"])
def test_a_failure_is_said_once_and_stops_nothing(monkeypatch, tmp_path, break_on):
    sink, notes = sink_of(monkeypatch, FakeWandb(break_on), tmp_path)
    for step in range(3):
        sink.write(step, {"reward/mean": 0.5})
    sink.close()
    assert len(notes) == 1 and "network is unreachable" in notes[0]


def test_a_missing_package_names_the_extra(monkeypatch, tmp_path):
    with pytest.raises(UserError, match="uv sync --inexact --extra wandb"):
        sink_of(monkeypatch, None, tmp_path)
