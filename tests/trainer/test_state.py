"""What is saved when, and what a disk that is full leaves behind."""

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from slimrl.config.run import CkptConfig
from slimrl.config.train import OptimConfig
from slimrl.errors import UserError
from slimrl.trainer.state import peak_memory_gb, save_if_due, start
from tests.trainer.policies import tiny_policy, tiny_state
from tests.trainer.samples import CPU


@contextmanager
def files_limited_to(num_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


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


def test_saved_weights_are_a_model_that_plain_transformers_loads(tmp_path):
    state = tiny_state()
    run(state, tmp_path, 1, CkptConfig())
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "weights" / "step_1", dtype="auto")
    ours = dict(state.policy.module.named_parameters())
    assert {name for name, _ in loaded.named_parameters()} == ours.keys()
    assert all(torch.equal(parameter, ours[name]) for name, parameter in loaded.named_parameters())
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "weights" / "step_1")
    assert tokenizer.chat_template == state.policy.tokenizer.chat_template


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


def test_a_step_on_the_cpu_has_a_peak_memory():
    assert 0.05 < peak_memory_gb(CPU) < 100


def test_peak_memory_is_counted_in_bytes_on_macos_and_in_kib_elsewhere(monkeypatch):
    on_linux = peak_memory_gb(CPU)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert peak_memory_gb(CPU) == pytest.approx(on_linux / 1024, rel=0.1)
