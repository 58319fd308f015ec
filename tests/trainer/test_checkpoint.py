"""Checkpoints and weights: saved when they are due, whole or not there, and enough to go on from."""

import errno
import io
import random
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from slimrl.config.run import CkptConfig
from slimrl.config.train import OptimConfig
from slimrl.errors import UserError
from slimrl.trainer.checkpoint import Progress, load_checkpoint, read_progress, save_checkpoint
from slimrl.trainer.optim import MasterAdamW
from slimrl.trainer.recovery import remove_leftovers
from slimrl.trainer.state import peak_memory_gb, save_if_due, start
from tests.trainer.policies import tiny_policy, tiny_state
from tests.trainer.samples import CPU


def progress(step: int) -> Progress:
    state = {"data_position": 10 * step, "role_means": {"0/a": 0.1}}
    return Progress(step=step, dtype="float32", num_threads=1, seconds=0.5, orchestrator_state=state)


def optimizer_after(num_steps: int) -> MasterAdamW:
    module = nn.Linear(3, 2)
    nn.init.ones_(module.weight)
    optimizer = MasterAdamW(module, OptimConfig(lr=0.1))
    for _ in range(num_steps):
        module(torch.ones(1, 3)).sum().backward()
        optimizer.step(1.0)
    return optimizer


def saved(output_dir: Path, *steps: int, keep: int = 5) -> None:
    for step in steps:
        save_checkpoint(output_dir, optimizer_after(step), progress(step), keep)


def steps_on_disk(output_dir: Path) -> set[str]:
    return {path.name for path in (output_dir / "checkpoints").iterdir()}


def weights_of(optimizer: MasterAdamW) -> torch.Tensor:
    master: torch.Tensor = optimizer.state_dict()["parameters"]["weight"]["master"]
    return master


def draw() -> list[float]:
    return [random.random(), random.gauss(0, 1), np.random.random(), np.random.standard_normal(), torch.rand(1).item()]


def test_the_newest_checkpoint_is_restored(tmp_path):
    assert load_checkpoint(tmp_path, optimizer_after(0)) is read_progress(tmp_path) is None
    saved(tmp_path, 2, 10, 9)  # numbers, not names, decide which is newest
    restored = optimizer_after(0)
    assert load_checkpoint(tmp_path, restored) == progress(10) == read_progress(tmp_path)
    assert torch.equal(weights_of(restored), weights_of(optimizer_after(10)))


def test_only_the_newest_are_kept_and_saving_a_step_again_replaces_it(tmp_path):
    saved(tmp_path, 1, 2, 3, keep=2)
    assert steps_on_disk(tmp_path) == {"step_2", "step_3"}
    save_checkpoint(tmp_path, optimizer_after(5), progress(3), keep=2)
    restored = optimizer_after(0)
    load_checkpoint(tmp_path, restored)
    assert torch.equal(weights_of(restored), weights_of(optimizer_after(5)))


def test_every_generator_goes_on_where_it_was(tmp_path):
    draw()  # python and numpy now hold half of a pair of normal numbers
    save_checkpoint(tmp_path, optimizer_after(1), progress(1), keep=1)
    expected = draw()
    assert draw() != expected
    load_checkpoint(tmp_path, optimizer_after(0))
    assert draw() == expected


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_crash_before_the_rename_leaves_the_earlier_checkpoint(tmp_path, monkeypatch, error):
    saved(tmp_path, 1)

    def crash(*_args: object) -> None:
        raise error

    monkeypatch.setattr(Path, "rename", crash)
    with pytest.raises((UserError, KeyboardInterrupt)):
        saved(tmp_path, 2)
    assert steps_on_disk(tmp_path) == {"step_1"}
    assert load_checkpoint(tmp_path, optimizer_after(0)) == progress(1)


def test_a_killed_writers_leftovers_are_ignored_then_removed(tmp_path):
    saved(tmp_path, 1)
    leftover = tmp_path / "checkpoints" / ".step_2.tmp-99"
    leftover.mkdir()
    (leftover / "state.pt").write_bytes(b"half")
    assert load_checkpoint(tmp_path, optimizer_after(0)) == progress(1)
    saved(tmp_path, 2)  # in the way of the next attempt at the same step
    assert load_checkpoint(tmp_path, optimizer_after(0)) == progress(2)
    leftover.mkdir()
    remove_leftovers(tmp_path)
    assert steps_on_disk(tmp_path) == {"step_1", "step_2"}


def state_bytes(content: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "damaged",
    [
        lambda good: None,
        lambda good: b"",
        lambda good: good[: len(good) // 2],
        lambda good: good[:-1],
        lambda good: b"<html>not found</html>",
        lambda good: state_bytes([1]),
        lambda good: state_bytes({"optimizer": {"updates": 1, "parameters": {}}, "rng": {}}),
        lambda good: state_bytes({"optimizer": 1}),
    ],
    ids=["missing", "empty", "half", "cut", "html", "list", "other model", "other kind"],
)
def test_a_damaged_state_is_a_user_error_that_names_the_directory(tmp_path, damaged):
    saved(tmp_path, 1, 2)
    file = tmp_path / "checkpoints" / "step_2" / "state.pt"
    good = file.read_bytes()
    file.unlink()
    if (content := damaged(good)) is not None:
        file.write_bytes(content)
    what = r"step_2 (cannot be read .*--resume|does not fit this model .*keep it)"
    with pytest.raises(UserError, match=what) as caught:
        load_checkpoint(tmp_path, optimizer_after(0))
    assert "weights_only" not in str(caught.value)  # torch advises to load the file unsafely


@contextmanager
def files_limited_to(num_bytes: int) -> Iterator[None]:
    """A process may be forbidden files above a size: to it, the disk is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # Python would leave parts of compiled modules
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        sys.dont_write_bytecode = writes
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_an_old_checkpoint_that_cannot_be_deleted_ends_no_run(tmp_path, monkeypatch, capsys):
    def refuse(path, ignore_errors=False):
        if not ignore_errors:
            raise OSError(errno.EBUSY, "Device or resource busy", f"{path}/.nfs0001")

    monkeypatch.setattr("slimrl.trainer.checkpoint.shutil.rmtree", refuse)
    saved(tmp_path, 1, 2, 3, keep=1)
    assert steps_on_disk(tmp_path) == {"step_1", "step_2", "step_3"}
    assert "step_1 is no longer needed and could not be deleted" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["step_³", "step_٣", "step_" + "9" * 400, "step_", "step_-1", "step_1_", "step_4"])
def test_what_is_no_checkpoint_by_its_name_or_kind_is_left_alone(tmp_path, name):
    saved(tmp_path, 1)
    other = tmp_path / "checkpoints" / name[:250]
    other.write_text("mine") if name == "step_4" else other.mkdir()
    assert load_checkpoint(tmp_path, optimizer_after(0)) == progress(1)
    saved(tmp_path, 2, keep=1)
    assert other.exists()


def run(state, output_dir, num_steps, ckpt):
    for _ in range(num_steps):
        state.advance(seconds=0.5)
        save_if_due(state, output_dir, num_steps, ckpt)


@pytest.mark.slow
@pytest.mark.parametrize(("interval", "expected"), [(0, [5]), (2, [4, 5]), (5, [5]), (1, [4, 5])])
def test_saves_at_the_interval_and_at_the_end_and_keeps_the_newest(tmp_path, interval, expected):
    run(tiny_state(), tmp_path, 5, CkptConfig(interval_steps=interval, keep=2))
    for kind in ("weights", "checkpoints"):
        assert sorted(path.name for path in (tmp_path / kind).glob("step_*")) == [f"step_{step}" for step in expected]


def test_resume_takes_up_the_newest_checkpoint_and_a_fresh_start_ignores_it(tmp_path):
    state = tiny_state()
    masters = state.optimizer.state_dict()
    next(iter(masters["parameters"].values()))["master"].fill_(0.25)
    state.optimizer.load_state_dict(masters)
    run(state, tmp_path, 2, CkptConfig())
    resumed = start(tiny_policy(), OptimConfig(), tmp_path, resume=True)
    assert resumed.progress == state.progress
    assert resumed.progress.seconds == 1.0
    assert (next(resumed.policy.module.parameters()) == 0.25).all()
    assert start(tiny_policy(), OptimConfig(), tmp_path, resume=False).progress.step == 0


@pytest.mark.parametrize("limit", [2_000, 100_000])
def test_a_full_disk_stops_the_run_with_advice_and_keeps_the_last_save(tmp_path, limit):
    state = tiny_state()
    run(state, tmp_path, 1, CkptConfig())
    state.advance(seconds=0.5)
    with files_limited_to(limit), pytest.raises(UserError, match=r"step_2.*--resume"):
        save_if_due(state, tmp_path, 2, CkptConfig())
    for kind in ("weights", "checkpoints"):
        assert [path.name for path in (tmp_path / kind).glob("step_*")] == ["step_1"]
    assert start(tiny_policy(), OptimConfig(), tmp_path, resume=True).progress.step == 1


def test_peak_memory_is_counted_in_bytes_on_macos_and_in_kib_elsewhere(monkeypatch):
    on_linux = peak_memory_gb(CPU)
    assert 0.05 < on_linux < 100
    monkeypatch.setattr(sys, "platform", "darwin")
    assert peak_memory_gb(CPU) == pytest.approx(on_linux / 1024, rel=0.1)
