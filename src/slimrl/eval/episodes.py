"""Files of an evaluation's episodes. Each episode is written when it ends, so that the evaluation can be resumed.

A line is a rollout as in `monitor/rollouts.py`, with its task's id within the evaluation.
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from slimrl.io.files import LineFile, encode_line, read_lines, replace_file
from slimrl.monitor.rollouts import RolloutRecord, data_for_file, read_rollouts, rollout_to_json
from slimrl.types import Rollout, Task


class EpisodeFile:
    """A file that is open for adding episodes. `keep` keeps the existing episodes. `text` decodes token ids."""

    def __init__(self, path: Path, text: Callable[[list[int]], str], keep: bool) -> None:
        self._path, self._text = path, text
        if keep:  # only complete lines: a line cut off by a crash would spoil the next one
            replace_file(path, (encode_line(line, digest=True) for line in read_lines(path)))
        self._file = LineFile(path, keep=keep, digests=True)

    def add(self, rollout: Rollout) -> None:
        """Append an episode."""
        self._file.append(self._line(rollout))

    def finish(self, episodes: Iterable[Rollout]) -> None:
        """Rewrite the file with all its episodes in the given order, so that equal evaluations write equal files."""
        replace_file(self._path, (encode_line(self._line(episode), digest=True) for episode in episodes))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def _line(self, rollout: Rollout) -> dict[str, Any]:
        return rollout_to_json(RolloutRecord(rollout, (), self._text(list(rollout.token_ids_T))))


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
