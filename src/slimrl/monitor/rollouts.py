"""Writes rollouts to `output_dir/rollouts/step_000010.jsonl`, one per line, for people and viewers to read.

The caller provides the text: this module needs no tokenizer. Each line has a digest of itself at its end. JSON has no
nan, so a reward, advantage or log-probability that is not finite is written as null and read back as nan.
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
# The keys of a line. The short ones and the text are first, because people who open the file look for them.
KEYS = """
task_id environment draw has_signal role reward turn_rewards advantages failure failure_detail stop_reason metrics env_s
task_data text messages token_ids loss_mask logprobs versions
"""
ROOM = 0.9  # share of `max_bytes` that is left after a deletion, so that not every step deletes files


@dataclass(frozen=True, slots=True)
class RolloutRecord:
    """A rollout with the advantage of each turn and all of its tokens as text. `environment` is the name of its
    environment. `draw` is the number of the task's draw in the run; rollouts of a group have the same number.
    `has_signal` is True if the group had a learning signal, so that it was trained on."""

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
    """Return the rollouts of a file, without an incomplete last line. Raise UserError if the file is missing."""
    return [rollout_from_json(line) for line in read_lines(path)]


def rollout_to_json(record: RolloutRecord) -> dict[str, Any]:
    """Return the rollout as the JSON object of a line."""
    rollout = record.rollout
    values = {one.name.removesuffix("_T"): getattr(rollout, one.name) for one in fields(rollout)}
    values |= {one.name: getattr(record, one.name) for one in fields(record)}
    values |= {name: without_nan(values[name]) for name in ("reward", "advantages", "metrics", "logprobs")}
    values["loss_mask"] = [int(mask) for mask in rollout.loss_mask_T]
    values["env_s"] = [round(seconds, 4) for seconds in rollout.env_s]
    values["task_data"] = data_for_file(rollout.task_data)
    return {key: values[key] for key in KEYS.split()}


def rollout_from_json(line: dict[str, Any]) -> RolloutRecord:
    """Return the rollout of a line; unknown keys are ignored."""
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
    """Return a value of a task's data. A long value, such as a web page, is replaced by the start of its text."""
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
    """Return the step with the smallest distance between its neighbours, except the first and the newest steps."""
    inner = range(1, len(steps) - NEWEST)
    return min((steps[place + 1] - steps[place - 1], steps[place]) for place in inner)[1]
