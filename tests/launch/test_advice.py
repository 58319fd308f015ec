"""Settings that are allowed but unusual are pointed out."""

import pytest

from slimrl.config.model import LoraConfig
from slimrl.launch.advice import lora_warnings


@pytest.mark.parametrize(
    ("rank", "alpha", "lr", "complaints"),
    [
        (0, 1e6, 1e-5, []),
        (8, 32.0, 2e-4, []),
        (1, 32.0, 1e-3, []),
        (8, 32.0, 1e-5, ["optim.lr = 1e-05"]),
        (8, 32.0, 0.1, ["optim.lr = 0.1"]),
        (8, 1024.0, 2e-4, ["model.lora.alpha / model.lora.rank = 128"]),
        (64, 1.0, 1e-5, ["optim.lr", "model.lora.alpha"]),
        (512, 32.0, 2e-4, ["model.lora.rank = 512"]),
    ],
)
def test_unusual_settings_are_pointed_out(rank: int, alpha: float, lr: float, complaints: list[str]) -> None:
    found = lora_warnings(LoraConfig(rank=rank, alpha=alpha), "optim.lr", lr)
    assert [text.startswith(start) for text, start in zip(found, complaints, strict=True)] == [True] * len(complaints)


@pytest.mark.parametrize(("targets", "num"), [(["q_proj", "v_proj"], 1), (["q_proj", "mlp.down_proj"], 0)])
def test_leaving_the_mlp_out_is_pointed_out(targets: list[str], num: int) -> None:
    found = lora_warnings(LoraConfig(rank=8, targets=targets), "optim.lr", 2e-4)
    assert ["leaves the MLP as it is" in text for text in found] == [True] * num
