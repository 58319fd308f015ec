"""Trainer and orchestrator that were started differently do not begin."""

from datetime import date
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl_cluster.launch.agreement import announcement, check_agreement, with_announced_date

ENV = ["--orchestrator.env.0.id", "reverse-text"]


def config_of(*argv: str) -> RLConfig:
    return load(RLConfig, [*ENV, *argv], {}).config


def policy(day: date | None = None) -> Any:
    return SimpleNamespace(dtype=torch.bfloat16, chat=SimpleNamespace(date=day))


def test_the_same_settings_agree_wherever_they_stand():
    told = announcement(config_of("--max_steps", "7"), policy(), 3)
    check_agreement(told, config_of("--max_steps=7", "--resume", "--inference.port", "8000"), 3)


@pytest.mark.parametrize("argv", [["--seed", "1"], ["--max_steps", "8"], ["--trainer.loss.type", "rloo"]])
def test_other_settings_are_refused(argv):
    with pytest.raises(UserError, match="other settings"):
        check_agreement(announcement(config_of(), policy(), 0), config_of(*argv), 0)


def test_a_trainer_that_goes_on_from_another_step_is_refused():
    with pytest.raises(UserError, match="begins with step 4, and this process with step 0"):
        check_agreement(announcement(config_of(), policy(), 4), config_of(), 0)


def test_the_date_of_the_prompts_is_the_trainers():
    told = announcement(config_of(), policy(date(2026, 1, 2)), 0)
    assert with_announced_date(config_of().model, told).date == "2026-01-02"
    assert with_announced_date(config_of().model, announcement(config_of(), policy(), 0)).date == "auto"
