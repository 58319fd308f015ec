"""Files of an evaluation's episodes. Each episode is written when it ends, so that the evaluation can be resumed.

A line is a rollout as in `monitor/rollouts.py`, with its task's id within the evaluation.
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from slimrl.io.files import encode_line, replace_file
from slimrl.monitor.rollouts import RolloutRecord, data_for_file, read_rollouts, rollout_to_json
from slimrl.types import Rollout, Task

Text = Callable[[list[int]], str]  # decodes token ids


def episode_line(rollout: Rollout, text: Text) -> dict[str, Any]:
    """Return the JSON object of an episode."""
    return rollout_to_json(RolloutRecord(rollout, (), text(list(rollout.token_ids_T))))


def write_episodes(path: Path, episodes: Iterable[Rollout], text: Text) -> None:
    """Replace the content of a file with the episodes, in the given order."""
    replace_file(path, (encode_line(episode_line(episode, text), digest=True) for episode in episodes))


def read_episodes(path: Path) -> dict[str, Rollout]:
    """Return the rollouts of a file by their tasks' ids. Raise UserError if the file is missing."""
    return {record.rollout.task_id: record.rollout for record in read_rollouts(path)}


def past_episodes(path: Path) -> dict[str, Rollout]:
    """Return a file's episodes that need not be repeated. Failed episodes are left out: they may succeed now."""
    found = read_episodes(path) if path.exists() else {}
    return {task_id: rollout for task_id, rollout in found.items() if not rollout.failure}


def is_of(rollout: Rollout, task: Task) -> bool:
    """Return True if an episode from a file belongs to `task`. The data of the two tasks are compared, because an id
    may be only a line's number."""
    return bool(rollout.task_data == json.loads(json.dumps(data_for_file(task.data))))
