"""Trainings under torchrun: what several processes share ends as what one does, and any number goes on with it."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from slimrl.monitor.sinks import read_metrics
from slimrl.types import Metrics
from tests.ranks import ROOT, run_all, torchrun

RL, SFT = (str(ROOT / "configs" / "debug" / loop / "train.toml") for loop in ("rl", "sft"))
LR = 1e-3
ONE = ("-m", "slimrl")


def settings(tiny_dir: Path, max_steps: int, *more: str) -> list[str]:
    model = ["--model.name", str(tiny_dir), "--model.dtype", "float32", "--model.device", "cpu"]
    return [*model, "--max_steps", str(max_steps), *more, "--output_dir"]


def assert_same_weights(found: Path, expected: Path) -> None:
    weights, found_weights = (load_file(path / "model.safetensors") for path in (expected, found))
    assert weights.keys() == found_weights.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(found_weights[name], weight, rtol=0, atol=0.1 * LR, msg=name)


def logged(output_dir: Path, name: str) -> list[float]:
    lines: list[tuple[int, Metrics]] = read_metrics(output_dir / "metrics.jsonl")
    return [metrics[name] for _, metrics in lines if name in metrics]


@pytest.mark.nightly
def test_torchrun_trains_as_one_process_does_and_logs_once(tmp_path: Path, tiny_dir: Path) -> None:
    flags = ["@", RL, *settings(tiny_dir, 3, "--trainer.optim.lr", str(LR))]
    by_module = torchrun(2, "-m", "slimrl.trainer.rl.train")
    run_all([[*ONE, "trainer", *flags, str(tmp_path / "one")], [*by_module, *flags, str(tmp_path / "two")]])
    one, two = (tmp_path / name / "weights" / "step_3" for name in ("one", "two"))
    assert_same_weights(two, one)
    for name in ("loss/policy", "loss/tokens", "optim/grad_norm", "guard/mean_logprob_gap"):
        expected = logged(tmp_path / "one", name)
        assert len(expected) == 3 and logged(tmp_path / "two", name) == pytest.approx(expected, rel=1e-3, abs=1e-5)
    loaded = AutoModelForCausalLM.from_pretrained(two, dtype=torch.float32)
    saved = load_file(two / "model.safetensors")
    assert all(torch.equal(loaded.state_dict()[name], tensor) for name, tensor in saved.items())


@pytest.mark.nightly
def test_four_save_adapters_and_value_head_and_two_go_on(tmp_path: Path, tiny_dir: Path) -> None:
    lora = ["--model.lora.rank", "4", "--trainer.activation_checkpointing", "true", "--trainer.optim.lr", str(LR)]
    loss = ["--trainer.loss.type", "ppo", "--trainer.loss.advantage", "gae", "--trainer.loss.kl_beta", "0.1"]
    save = ["--ckpt.interval_steps", "1", "--ckpt.keep", "9"]
    first, last = (["@", RL, *settings(tiny_dir, step, *lora, *loss, *save)] for step in (1, 2))
    one, shared = str(tmp_path / "one"), str(tmp_path / "shared")
    run_all([[*ONE, "trainer", *last, one], [*torchrun(4, *ONE), "trainer", *first, shared]])
    optimizer = tmp_path / "shared" / "checkpoints" / "step_1" / "optimizer"
    assert len([*optimizer.glob("*.safetensors")]) == 4
    run_all([[*torchrun(2, *ONE), "trainer", *last, shared, "--resume"]])
    assert logged(tmp_path / "shared", "loss/value") == pytest.approx(logged(tmp_path / "one", "loss/value"), rel=1e-3)
    assert_same_weights(tmp_path / "shared" / "weights" / "step_2", tmp_path / "one" / "weights" / "step_2")


@pytest.mark.nightly
def test_supervised_training_is_shared(tmp_path: Path, tiny_dir: Path) -> None:
    flags = ["@", SFT, *settings(tiny_dir, 2, "--optim.lr", str(LR), "--activation_checkpointing", "true")]
    run_all([[*ONE, "sft", *flags, str(tmp_path / "one")], [*torchrun(2, *ONE), "sft", *flags, str(tmp_path / "two")]])
    assert_same_weights(tmp_path / "two" / "weights" / "step_2", tmp_path / "one" / "weights" / "step_2")
    for name in ("sft/loss", "sft/val_loss", "sft/tokens"):
        assert logged(tmp_path / "two", name) == pytest.approx(logged(tmp_path / "one", name), rel=1e-5)
