"""Compares the settings of trainer and orchestrator. The trainer announces facts, and the orchestrator checks them.

Both processes normally read the same file. But a user who starts them by hand may give them different flags, or
`--resume` to only one of them.
"""

import hashlib
import json
from datetime import date

from slimrl.config.model import ModelConfig
from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl.models.device import dtype_name
from slimrl.models.load import Policy
from slimrl_cluster.transport.roster import Facts


def announcement(config: RLConfig, policy: Policy, first_step: int) -> Facts:
    """Return the facts that the trainer announces to the other parts of a run with the settings `config`."""
    day: date | None = policy.chat.date
    return {
        "dtype": dtype_name(policy.dtype),
        "date": day.isoformat() if day else "",
        "first_step": str(first_step),
        "settings": _digest(config),
    }


def check_agreement(trainer: Facts, config: RLConfig, first_step: int) -> None:
    """Raise UserError if the trainer was started with settings other than `config`, or at a step other than
    `first_step`."""
    if trainer["first_step"] != str(first_step):
        raise UserError(
            f"the trainer begins with step {trainer['first_step']}, and this process with step {first_step}: start "
            "both with `--resume`, or both without."
        )
    if trainer["settings"] != _digest(config):
        raise UserError(
            f"the trainer was started with other settings than this process. Those of the trainer are in "
            f"{config.output_dir}/config.toml: start both with the same file and the same flags."
        )


def with_announced_date(model: ModelConfig, trainer: Facts) -> ModelConfig:
    """Return the model's settings with the date that the trainer uses in prompts, even if today is a later day."""
    return model.model_copy(update={"date": trainer["date"]}) if trainer["date"] else model


def _digest(config: RLConfig) -> str:
    settings = config.model_dump(
        exclude={"output_dir": True, "resume": True, "inference": {"port"}, "deployment": {"host"}}
    )
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
