"""Whole commands on a GPU: `rl` learns, saves, resumes; an adapter and a value head train; plain transformers loads."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from slimrl.cli import run
from slimrl.monitor.sinks import read_metrics
from slimrl.trainer.checkpoint import read_progress
from tests.commands.test_rl import STEPS, reproducible, rl_flags

ON_GPU = ("--model.device", "cuda", "--inference.max_slots", "4")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_run_ends_with_weights_that_load(wide_dir: Path, tmp_path: Path, dtype: str):
    output_dir = tmp_path / "run"
    assert run(rl_flags(wide_dir, output_dir, *ON_GPU, "--model.dtype", dtype)) == 0
    module = AutoModelForCausalLM.from_pretrained(output_dir / "weights" / f"step_{STEPS}")
    assert all(torch.isfinite(parameter).all() for parameter in module.parameters())
    gaps = [m["guard/mismatch_kl"] for _, m in read_metrics(output_dir / "metrics.jsonl") if "guard/mismatch_kl" in m]
    assert len(gaps) == STEPS and max(gaps) < (1e-6 if dtype == "float32" else 0.01)
    assert json.loads((output_dir / "summary.json").read_text())["tokens_sampled"] > 0


def test_a_resumed_run_goes_on(wide_dir: Path, tmp_path: Path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert run(rl_flags(wide_dir, whole, *ON_GPU)) == 0
    shutil.copytree(whole, cut)
    shutil.rmtree(cut / "checkpoints" / f"step_{STEPS}", ignore_errors=True)
    progress = read_progress(cut)
    assert progress is not None and progress.step < STEPS
    assert run(rl_flags(wide_dir, cut, *ON_GPU, "--resume")) == 0
    for (step, ours), (other, theirs) in zip(reproducible(cut), reproducible(whole), strict=True):
        assert step == other and ours == pytest.approx(theirs, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize(
    "more",
    [
        ("--trainer.model.lora.rank", "4"),
        ("--trainer.loss.type", "ppo", "--trainer.loss.advantage", "gae"),
        ("--trainer.activation_checkpointing", "true"),
        ("--max_async_level", "2"),
        ("--deployment.type", "processes"),
    ],
)
def test_each_way_of_training_runs(wide_dir: Path, tmp_path: Path, more: tuple[str, ...]):
    assert run(rl_flags(wide_dir, tmp_path / "run", *ON_GPU, *more)) == 0
