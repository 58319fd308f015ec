"""Rules of the sections that several commands share: model, groups, schedule, lengths, temperatures."""

import re
from datetime import date

from slimrl.config.checks.error import ConfigError
from slimrl.config.model import ModelConfig
from slimrl.config.train import ScheduleConfig


def check_model(model: ModelConfig) -> None:
    """Refuses a device that does not exist in PyTorch's notation, and a date that is none. Raises ConfigError."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", model.device):
        raise ConfigError(
            f'model.device = "{model.device}" is no device, expected auto, cpu, cuda or cuda:NUMBER.',
            "model.device",
        )
    if model.date != "auto" and not _is_date(model.date):
        raise ConfigError(
            f'model.date = "{model.date}" is no date, expected auto or YEAR-MONTH-DAY, as in 2026-01-31.', "model.date"
        )


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def check_nothing_trained(model: ModelConfig) -> None:
    """Refuses LoRA in a command that does not train. Raises ConfigError."""
    if model.lora.rank > 0:
        raise ConfigError(
            f"model.lora.rank = {model.lora.rank} cannot act, because this command trains nothing. Remove it: adapters "
            "are merged into the weights that a run saves, and model.name may be an adapter's directory.",
            "model.lora.rank",
        )


def check_groups(batch_size: int, rollouts_per_example: int, section: str) -> None:
    """Refuses a batch that is no whole number of groups; `section` has both settings. Raises ConfigError."""
    if batch_size % rollouts_per_example != 0:
        lower = batch_size // rollouts_per_example * rollouts_per_example
        sizes = f"{lower} or {lower + rollouts_per_example}" if lower else f"{rollouts_per_example}"
        raise ConfigError(
            f"{section}.batch_size = {batch_size} is not a multiple of {section}.rollouts_per_example = "
            f"{rollouts_per_example}, so the last group would be incomplete. Set batch_size to {sizes}.",
            f"{section}.batch_size",
            f"{section}.rollouts_per_example",
        )


def check_schedule(schedule: ScheduleConfig, section: str) -> None:
    """Refuses a lower end for a learning rate that is constant. Raises ConfigError."""
    if schedule.type == "constant" and schedule.min_lr_ratio != 0.0:
        raise ConfigError(
            f'{section}.min_lr_ratio = {schedule.min_lr_ratio} cannot act, because {section}.type = "constant" never '
            'falls. Remove it, or use type "linear" or "cosine".',
            f"{section}.min_lr_ratio",
            f"{section}.type",
        )


def check_fits(max_tokens: int, seq_len: int, key: str) -> None:
    """Refuses a reply as long as a whole conversation; `key` names `max_tokens`. Raises ConfigError."""
    if max_tokens >= seq_len:
        raise ConfigError(
            f"{key} = {max_tokens} leaves no room for a prompt in seq_len = {seq_len}. Raise seq_len or lower {key}.",
            key,
            "seq_len",
        )


def check_temperatures(temperatures: list[float], key: str) -> None:
    """Refuses a temperature that is listed twice. Raises ConfigError."""
    if len(set(temperatures)) != len(temperatures):
        raise ConfigError(f"{key} = {temperatures} names a temperature twice; the results would be one metric.", key)
