"""Writes rollouts to `output_dir/rollouts/step_000010.jsonl`, one rollout per line, for people and viewers.

The caller provides the text, so this module needs no tokenizer. Each line ends with a digest of its content.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slimrl.io.files import LineFile, decode_floats, encode_floats, read_lines, without_nan
from slimrl.io.rollout_json import decode_rollout, encode_rollout
from slimrl.types import Rollout

MAX_VALUE = 2_000  # maximum number of characters of one value of a task's data
# The keys of a line. Short values and the text are first, because people who open the file look for them.
KEYS = """
task_id environment draw has_signal role reward turn_rewards advantages failure failure_detail stop_reason metrics env_s
task_data text messages token_ids loss_mask logprobs versions
"""
OWN = ("text", "environment", "draw", "has_signal")


@dataclass(frozen=True, slots=True)
class RolloutRecord:
    """A rollout with the advantage of each turn, and the text of all tokens. `environment` is the environment's name.
    `draw` is the task's position in the run's order of tasks; rollouts of a group have the same position. `has_signal`
    is True if the group had a gradient, so that it was trained on."""

    rollout: Rollout
    advantages: tuple[float, ...]
    text: str
    environment: str = ""
    draw: int = -1
    has_signal: bool = True


def write_rollouts(path: Path, records: Iterable[RolloutRecord]) -> None:
    """Write the rollouts to a new file, line by line. Raise UserError if the disk is full."""
    file = LineFile(path, digests=True)
    try:
        for record in records:
            file.append(rollout_to_json(record))
    finally:
        file.close()


def read_rollouts(path: Path) -> list[RolloutRecord]:
    """Return the rollouts in a file. An incomplete last line is skipped. Raise UserError if the file is missing."""
    return [rollout_from_json(line) for line in read_lines(path)]


def rollout_to_json(record: RolloutRecord) -> dict[str, Any]:
    """Convert a rollout to the JSON object of a line. Long values of the task's data are shortened."""
    values = encode_rollout(record.rollout) | {name: getattr(record, name) for name in OWN}
    values["advantages"] = encode_floats(record.advantages)
    values["env_s"] = [round(seconds, 4) for seconds in record.rollout.env_s]
    values["task_data"] = data_for_file(record.rollout.task_data)
    return {key: values[key] for key in KEYS.split()}


def rollout_from_json(line: dict[str, Any]) -> RolloutRecord:
    """Convert the JSON object of a line to a rollout. Ignore unknown keys."""
    advantages = tuple(decode_floats(line["advantages"]))
    return RolloutRecord(decode_rollout(line, line["task_data"]), advantages, *(line[name] for name in OWN))


def data_for_file(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task's data for a file, with long values shortened."""
    return {name: _shorten(value) for name, value in data.items()}


def _shorten(value: Any) -> Any:
    """Return a value of a task's data unchanged if it is short. Otherwise return the start of its text."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return without_nan(value) if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]} …"
