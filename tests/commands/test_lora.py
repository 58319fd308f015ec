"""The commands with adapters: `rl` with its warm-up, `sft`, and `eval` of what they leave."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from slimrl.cli import run
from slimrl.monitor.sinks import read_metrics
from tests.commands.test_rl import STEPS, reproducible, rl_flags

pytestmark = pytest.mark.slow
LORA = ("--model.lora.rank", "4", "--model.dtype", "bfloat16", "--trainer.optim.lr", "0.001")


@pytest.fixture(scope="module")
def finished(tiny_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output_dir = tmp_path_factory.mktemp("lora") / "run"
    assert run(rl_flags(tiny_dir, output_dir, *LORA)) == 0
    return output_dir


def test_rl_trains_adapters_and_sampler_and_trainer_agree(finished: Path, tiny_dir: Path) -> None:
    lines = read_metrics(finished / "metrics.jsonl")[:STEPS]
    assert all(metrics["guard/mismatch_kl"] < 0.02 for _, metrics in lines)
    assert all(metrics["optim/grad_norm"] > 0 for _, metrics in lines)
    step = finished / "weights" / f"step_{STEPS}"
    names = {"SHA256SUMS", "adapter_config.json", "adapter_model.safetensors"}
    assert {path.name for path in (step / "adapter").iterdir()} == names
    trained, base = (
        AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16) for directory in (step, tiny_dir)
    )
    ours, theirs = dict(trained.named_parameters()), dict(base.named_parameters())
    changed = {name for name, tensor in ours.items() if not torch.equal(tensor, theirs[name])}
    assert changed == {name for name in ours if "_proj." in name}


def test_a_resumed_run_gives_the_same_numbers(finished: Path, tiny_dir: Path, tmp_path: Path) -> None:
    first = rl_flags(tiny_dir, tmp_path, *LORA, "--ckpt.keep", "9")
    assert run(first) == 0
    (tmp_path / "summary.json").unlink()
    for step in (4, STEPS):
        for kind in ("checkpoints", "weights"):
            (tmp_path / kind / f"step_{step}").rename(tmp_path / f"{kind}_{step}")
    assert run([*first, "--resume"]) == 0
    assert reproducible(tmp_path) == reproducible(finished)
    ours, theirs = (
        (directory / "weights" / f"step_{STEPS}" / "model.safetensors").read_bytes()
        for directory in (tmp_path, finished)
    )
    assert ours == theirs


def test_eval_repeats_the_last_evaluation(finished: Path, tmp_path: Path) -> None:
    assert run(["eval", "@", str(finished / "eval.toml"), "--output_dir", str(tmp_path / "again")]) == 0
    (found,) = (tmp_path / "again").rglob("held_out/*.json")
    again, before = (json.loads(path.read_text()) for path in (found, finished / "held_out" / "final.json"))
    assert again["held_out"] == before["held_out"]


def test_sft_trains_adapters(tiny_dir: Path, tmp_path: Path) -> None:
    settings = {
        "max_steps": 6,
        "seq_len": 160,
        "batch_size": 4,
        "micro_batch_tokens": 256,
        "output_dir": tmp_path,
        "model.name": tiny_dir,
        "model.dtype": "bfloat16",
        "model.num_threads": 1,
        "model.lora.rank": 4,
        "data.type": "expert",
        "data.env.id": "reverse-text",
        "optim.lr": 0.01,
    }
    assert run(["sft", *(text for key, value in settings.items() for text in (f"--{key}", str(value)))]) == 0
    losses = [
        metrics["sft/val_loss"] for _, metrics in read_metrics(tmp_path / "metrics.jsonl") if "sft/val_loss" in metrics
    ]
    assert losses[-1] < losses[0]
