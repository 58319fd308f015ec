"""Rules of the sections that several commands share: model, groups, schedule, lengths, temperatures."""

import re
from datetime import date

from slimrl.config.checks.faults import Faults, idle
from slimrl.config.model import ModelConfig
from slimrl.config.train import ScheduleConfig


def model_faults(model: ModelConfig, is_trained: bool = True) -> Faults:
    """Yield an invalid device in PyTorch's notation, an invalid date, and LoRA in a command that trains nothing."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", model.device):
        yield "<model.device=> is no device, expected auto, cpu, cuda or cuda:NUMBER."
    if model.date != "auto" and not _is_date(model.date):
        yield "<model.date=> is no date, expected auto or YEAR-MONTH-DAY, as in 2026-01-31."
    if model.lora.rank > 0 and not is_trained:
        yield (
            "<model.lora.rank=> cannot act, because this command trains nothing. Remove it: saved weights have their "
            "adapters merged, and model.name may be an adapter's directory."
        )


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def group_faults(batch_size: int, rollouts_per_example: int, section: str) -> Faults:
    """Yield a batch that is not a multiple of the group size; `section` has both settings."""
    lower = batch_size // rollouts_per_example * rollouts_per_example
    if lower != batch_size:
        sizes = f"{lower} or {lower + rollouts_per_example}" if lower else f"{rollouts_per_example}"
        size, group = f"<{section}.batch_size=>", f"<{section}.rollouts_per_example=>"
        yield f"{size} is not a multiple of {group}: the last group would be incomplete. Set batch_size to {sizes}."


def schedule_faults(schedule: ScheduleConfig, section: str) -> Faults:
    """Yield a fault if `min_lr_ratio` is set although the learning rate is constant."""
    if schedule.type == "constant":
        yield from idle(schedule, section, ["min_lr_ratio"], f'<{section}.type> "constant" never falls')


def length_faults(max_tokens: int, seq_len: int, key: str) -> Faults:
    """Yield a reply as long as a whole conversation; `key` names `max_tokens`."""
    if max_tokens >= seq_len:
        yield f"<{key}=> leaves no room for a prompt in <seq_len=>. Raise seq_len or lower {key}."


def temperature_faults(temperatures: list[float], key: str) -> Faults:
    """Yield a temperature that is listed twice."""
    if len(set(temperatures)) != len(temperatures):
        yield f"<{key}=> names a temperature twice; the results would be one metric."
