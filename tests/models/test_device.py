"""Devices, threads and number formats are chosen by what the machine has."""

import time
from pathlib import Path

import pytest
import torch

from slimrl.config.model import ModelConfig
from slimrl.errors import UserError
from slimrl.models import device
from slimrl.models.device import choose_device, choose_dtype
from slimrl.models.load import load_policy


def test_automatic_device_is_the_gpu_if_there_is_one() -> None:
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("name", ["cuda:77", "tpu-ish", "cpu:", "mps"])
def test_device_that_is_not_there_is_a_clear_error(name: str) -> None:
    with pytest.raises(UserError, match=r"model\.device is"):
        choose_device(name)


@pytest.mark.slow
def test_dtype_is_measured_quickly(tiny_dir: Path) -> None:
    start = time.thread_time()
    choice = choose_dtype(torch.device("cpu"))
    assert time.thread_time() - start < 2.0
    assert all(speed > 0.0 for speed in choice.gflops.values())
    policy = load_policy(ModelConfig(name=str(tiny_dir), device="cpu"))
    assert policy.dtype in (torch.bfloat16, torch.float32)
    assert policy.gflops.keys() == choice.gflops.keys() == {"bfloat16", "float32"}


@pytest.mark.parametrize(
    ("bfloat16", "float32", "expected"),
    [
        ([500.0], [100.0], "bfloat16"),
        ([105.0] * 5, [100.0] * 5, "float32"),
        ([20.0] * 5, [100.0] * 5, "float32"),
        pytest.param([86.0, 90.0, 800.0], [76.0, 80.0, 240.0], "bfloat16", id="machine that is busy at first"),
    ],
)
def test_bfloat16_is_taken_where_it_is_clearly_faster(
    monkeypatch: pytest.MonkeyPatch, bfloat16: list[float], float32: list[float], expected: str
) -> None:
    measured = {torch.bfloat16: iter(bfloat16), torch.float32: iter(float32)}
    monkeypatch.setattr(device, "_gflops", lambda dtype: next(measured[dtype]))
    choice = choose_dtype(torch.device("cpu"))
    assert choice.dtype == getattr(torch, expected)
    assert choice.gflops == {"bfloat16": max(bfloat16), "float32": max(float32)}
