"""Adapters are asked for where something is trained, and nowhere else."""

import pytest
from pydantic import ValidationError

from slimrl.config.base import CommandConfig
from slimrl.config.model import LoraConfig
from slimrl.config.reading.load import load
from slimrl.config.run import EvalRunConfig, TrainerOnlyConfig
from slimrl.config.serve import ServeConfig
from slimrl.errors import UserError


def test_rank_alpha_and_targets_are_flags() -> None:
    argv = ["--model.lora.rank", "8", "--model.lora.targets", '["q_proj", "v_proj"]', "--model.lora.alpha", "16.0"]
    lora = load(TrainerOnlyConfig, argv, {}).config.model.lora
    assert lora == LoraConfig(rank=8, alpha=16.0, targets=["q_proj", "v_proj"])
    assert TrainerOnlyConfig().model.lora.rank == 0


@pytest.mark.parametrize(
    ("config_class", "argv"),
    [(EvalRunConfig, ["--env.0.id", "reverse-text"]), (ServeConfig, [])],
    ids=["eval", "serve"],
)
def test_where_nothing_is_trained_a_rank_is_refused(config_class: type[CommandConfig], argv: list[str]) -> None:
    with pytest.raises(UserError, match=r"model\.lora\.rank = 8 cannot act"):
        load(config_class, [*argv, "--model.lora.rank", "8"], {})
    load(config_class, [*argv, "--model.lora.rank", "0"], {})


@pytest.mark.parametrize(
    "settings", [{"rank": -1}, {"alpha": 0.0}, {"targets": []}, {"targets": [""]}, {"targets": "q_proj"}]
)
def test_values_that_mean_nothing_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        LoraConfig.model_validate(settings)
