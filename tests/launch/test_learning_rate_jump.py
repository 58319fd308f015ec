"""A resumed run with another learning rate says so."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from slimrl.config.reading.load import load
from slimrl.config.run import SFTConfig, TrainerOnlyConfig
from slimrl.launch.open_dir import describe_jump
from slimrl.monitor.run_settings import flat_settings
from slimrl.trainer.checkpoint import fresh_progress, save_checkpoint
from slimrl.trainer.optim import MasterAdamW

COSINE = ["--trainer.schedule.type", "cosine", "--max_steps", "8"]


def trainer(*argv: str) -> TrainerOnlyConfig:
    return load(TrainerOnlyConfig, [*COSINE, *argv], {}).config


def checkpoint_of(step: int, directory: Path) -> None:
    module = torch.nn.Linear(2, 2)
    optimizer = MasterAdamW(module, trainer().trainer.optim)
    save_checkpoint(directory, optimizer, replace(fresh_progress(torch.float32), step=step), 1)


def test_a_stretched_schedule_is_said(tmp_path: Path):
    checkpoint_of(8, tmp_path)
    jump = describe_jump(flat_settings(trainer()), trainer("--max_steps", "12"), tmp_path)
    assert jump.startswith("the learning rate jumps: step 8 had 3.81e-07, and step 9 has 2.5e-06, where")


def test_another_peak_is_said(tmp_path: Path):
    checkpoint_of(4, tmp_path)
    assert "step 5 has 1e-05" in describe_jump(
        flat_settings(trainer()), trainer("--trainer.optim.lr", "2e-5"), tmp_path
    )


@pytest.mark.parametrize("more", [[], ["--trainer.guard.max_logprob_gap", "9"]])
def test_an_equal_learning_rate_is_not(more: list[str], tmp_path: Path):
    checkpoint_of(4, tmp_path)
    assert describe_jump(flat_settings(trainer()), trainer(*more), tmp_path) == ""


def test_a_constant_learning_rate_has_no_seam(tmp_path: Path):
    checkpoint_of(4, tmp_path)
    constant = ["--trainer.schedule.type", "constant"]
    assert describe_jump(flat_settings(trainer(*constant)), trainer(*constant, "--max_steps", "20"), tmp_path) == ""


def test_a_run_without_a_checkpoint_has_no_seam(tmp_path: Path):
    assert describe_jump(flat_settings(trainer()), trainer("--max_steps", "12"), tmp_path) == ""


def test_supervised_training_has_its_schedule_at_the_top(tmp_path: Path):
    checkpoint_of(4, tmp_path)
    argv = ["--data.type", "file", "--data.path", "x.jsonl", "--schedule.type", "linear", "--max_steps", "8"]
    first, second = (load(SFTConfig, [*argv, *more], {}).config for more in ([], ["--max_steps", "16"]))
    assert "the learning rate jumps" in describe_jump(flat_settings(first), second, tmp_path)
