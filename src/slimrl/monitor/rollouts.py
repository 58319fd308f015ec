"""Writes rollouts to `output_dir/rollouts/step_000010.jsonl`, one rollout per line, for people and viewers.

The caller provides the text, so this module needs no tokenizer. Each line ends with a digest of its content. JSON has
no nan, so a reward, advantage or log-probability that is not finite is written as null and read as nan.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from slimrl.io.files import LineFile, read_lines, without_nan
from slimrl.io.run_dir import RunDir
from slimrl.types import Rollout, StopReason

MAX_VALUE = 2_000  # maximum number of characters of one value of a task's data
NEWEST = 10  # steps that are never deleted
# The keys of a line. Short values and the text are first, because people who open the file look for them.
KEYS = """
task_id environment draw has_signal role reward turn_rewards advantages failure failure_detail stop_reason metrics env_s
task_data text messages token_ids loss_mask logprobs versions
"""
ROOM = 0.9  # delete files down to this fraction of `max_bytes`, so that not every step must delete files


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
    """Convert a rollout to the JSON object of a line."""
    rollout = record.rollout
    values = {one.name.removesuffix("_T"): getattr(rollout, one.name) for one in fields(rollout)}
    values |= {one.name: getattr(record, one.name) for one in fields(record)}
    values |= {name: without_nan(values[name]) for name in ("reward", "advantages", "metrics", "logprobs")}
    values["loss_mask"] = [int(mask) for mask in rollout.loss_mask_T]
    values["env_s"] = [round(seconds, 4) for seconds in rollout.env_s]
    values["task_data"] = data_for_file(rollout.task_data)
    return {key: values[key] for key in KEYS.split()}


def rollout_from_json(line: dict[str, Any]) -> RolloutRecord:
    """Convert the JSON object of a line to a rollout. Ignore unknown keys."""
    given = {one.name: line[one.name.removesuffix("_T")] for one in fields(Rollout)}
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    given |= {"loss_mask_T": tuple(map(bool, line["loss_mask"])), "logprobs_T": _floats(line["logprobs"])}
    given |= {"reward": _float(line["reward"]), "stop_reason": StopReason(line["stop_reason"])}
    given["metrics"] = {name: _float(value) for name, value in line["metrics"].items()}
    own = (line[name] for name in ("text", "environment", "draw", "has_signal"))
    return RolloutRecord(Rollout(**given), _floats(line["advantages"]), *own)


def data_for_file(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task's data for a file, with long values shortened."""
    return {name: _shorten(value) for name, value in data.items()}


def _shorten(value: Any) -> Any:
    """Return a value of a task's data unchanged if it is short. Otherwise return the start of its text."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return without_nan(value) if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]} …"


def _float(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _floats(values: Sequence[float | None]) -> tuple[float, ...]:
    return tuple(_float(value) for value in values)


def thin_rollouts(output_dir: Path, max_bytes: float) -> int:
    """Delete files of older steps, evenly over the run, if all files together exceed `max_bytes`. Return the number of
    deleted steps. The first step and the `NEWEST` last steps are never deleted."""
    files = RunDir(output_dir).rollout_files()
    sizes = {step: sum(path.stat().st_size for path in paths) for step, paths in files.items()}
    if sum(sizes.values()) <= max_bytes:
        return 0
    steps, deleted = sorted(files), 0
    while sum(sizes.values()) > ROOM * max_bytes and len(steps) > NEWEST + 1:
        step = _densest(steps)
        for path in files[step]:
            path.unlink(missing_ok=True)
        del sizes[step]
        steps.remove(step)
        deleted += 1
    return deleted


def _densest(steps: Sequence[int]) -> int:
    """Return the step whose two neighbours are closest to each other. The first step and the newest steps are left
    out."""
    inner = range(1, len(steps) - NEWEST)
    return min((steps[place + 1] - steps[place - 1], steps[place]) for place in inner)[1]
