"""Trackers of other programs, with the real packages where they are installed; W&B by a stand-in of its module."""

import math
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from slimrl.errors import UserError
from slimrl.monitor.trackers import TENSORBOARD_DIRECTORY, TrackedRun, tensorboard_sink, trackio_sink, wandb_sink


def a_run(directory, first_step=0, resume=False):
    return TrackedRun(directory, {"seed": 3, "model": {"name": "m", "limit": math.inf}}, first_step, resume)


class FakeWandb:
    """What the sink uses of the wandb module; `break_on` names the call that fails."""

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


def fake_wandb_sink(monkeypatch, fake, tmp_path, resume=False):
    monkeypatch.setitem(sys.modules, "wandb", fake)
    notes = []
    return wandb_sink(a_run(tmp_path, resume=resume), {"project": "slimrl", "entity": ""}, notes.append), notes


def test_wandb_gets_the_metrics_with_their_step_and_a_resumed_run_goes_on_in_the_same_run(monkeypatch, tmp_path):
    fakes = FakeWandb(), FakeWandb(), FakeWandb()
    for fake, resume in zip(fakes, (False, True, False), strict=True):
        sink, notes = fake_wandb_sink(monkeypatch, fake, tmp_path, resume)
        sink.write(4, {"reward/mean": 0.5})
        sink.close(failed=True)
        # An empty entity is left out.
        assert fake.calls[0][1].keys() == {"id", "resume", "dir", "settings", "project", "config"}
        assert fake.calls[1:] == [("log", {"step": 4, "reward/mean": 0.5}), ("finish", 1)] and notes == []
    ids = [fake.calls[0][1]["id"] for fake in fakes]
    assert ids[0] == ids[1] != ids[2]


@pytest.mark.parametrize("break_on", ["init", "log", "finish"])
def test_a_failure_is_said_once_and_stops_nothing(monkeypatch, tmp_path, break_on):
    sink, notes = fake_wandb_sink(monkeypatch, FakeWandb(break_on), tmp_path)
    for step in range(3):
        sink.write(step, {"reward/mean": 0.5})
    sink.close()
    assert len(notes) == 1
    assert "network is unreachable" in notes[0]


SINKS = {
    "wandb": ("wandb", lambda run: wandb_sink(run, {}, print)),
    "trackio": ("trackio", lambda run: trackio_sink(run, "p", "", print)),
    "tensorboard": ("torch.utils.tensorboard.writer", lambda run: tensorboard_sink(run, "", print)),
}


@pytest.mark.parametrize("extra", SINKS)
def test_a_missing_package_names_the_extra(monkeypatch, tmp_path, extra):
    module, start = SINKS[extra]
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=f"uv sync --inexact --extra {extra}"):
        start(a_run(tmp_path))


def scalars(directory: Path):
    """Every scalar of TensorBoard's files, as TensorBoard itself reads them: {name: [(step, value), ...]}."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(directory)).Reload()
    return {tag: [(one.step, one.value) for one in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_tensorboard_reads_what_was_logged_and_a_resumed_run_replaces_what_it_repeats(tmp_path):
    pytest.importorskip("tensorboard", reason="needs the extra `tensorboard`")
    notes = []
    first = tensorboard_sink(a_run(tmp_path), "seed = 3", notes.append)
    for step in range(5):  # killed after step 4, with its last checkpoint at step 3
        first.write(step, {"reward/mean": step / 8, "loss/ratio_max": math.inf})
    assert scalars(tmp_path / TENSORBOARD_DIRECTORY)["reward/mean"][-1] == (4, 0.5)  # on disk before it is closed
    again = tensorboard_sink(a_run(tmp_path, 3, resume=True), "seed = 3", notes.append)
    for step in range(3, 6):
        again.write(step, {"reward/mean": step / 4})
    again.close()
    assert scalars(tmp_path / TENSORBOARD_DIRECTORY)["reward/mean"] == [
        (0, 0.0), (1, 0.125), (2, 0.25), (3, 0.75), (4, 1.0), (5, 1.25),
    ]  # fmt: skip
    assert all("tensorboard --logdir" in note for note in notes)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / TENSORBOARD_DIRECTORY).write_text("a file where the directory should be")
    broken = tensorboard_sink(a_run(tmp_path / "other"), "", (notes := []).append)
    broken.write(0, {"reward/mean": 0.5})
    broken.close()
    assert "TensorBoard is off for the rest of this run" in notes[0]


def test_trackio_keeps_a_run_and_a_resumed_one_goes_on_in_it(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # which Trackio reads when it is imported
    trackio = pytest.importorskip("trackio", reason="needs the extra `trackio`")
    storage = pytest.importorskip("trackio.sqlite_storage").SQLiteStorage
    notes, project = [], f"slimrl-test-{tmp_path.name}"
    for first, resume in ((0, False), (3, True)):
        sink = trackio_sink(a_run(tmp_path / "my_run", first, resume), project, "", notes.append)
        for step in range(first, first + 4):
            sink.write(step, {"reward/mean": step / 8})
        sink.close()
    [run] = trackio.Api().runs(project)
    assert run.name.startswith("my_run-")
    logged = {line["step"]: line["reward/mean"] for line in storage.get_logs(project, run.name)}
    assert logged == {step: step / 8 for step in range(7)}
    assert run.config["seed"] == 3
    assert capsys.readouterr().out == ""
    assert not [note for note in notes if "is off" in note]
