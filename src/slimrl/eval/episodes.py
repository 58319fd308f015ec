"""Files of an evaluation's episodes, each written as soon as it ends, so that an interrupted evaluation can go on.

A line is a rollout as in `monitor/rollouts.py`, and has besides `env`, the number of its environment.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from slimrl.eval.evaluate import HeldOutTask, Place
from slimrl.io.files import LineFile, encode_line, read_lines, replace_file
from slimrl.monitor.rollouts import RolloutRecord, rollout_from_json, rollout_to_json
from slimrl.types import Rollout


class EpisodeFile:
    """A file that is open for adding episodes. With `keep` it keeps those that it has. `text` decodes token ids."""

    def __init__(self, path: Path, text: Callable[[list[int]], str], keep: bool) -> None:
        self._path, self._text = path, text
        if keep:  # only whole lines: a line cut off by a crash would spoil the next one
            replace_file(path, map(encode_line, read_lines(path)))
        self._file = LineFile(path, keep=keep)

    def add(self, asked: HeldOutTask, rollout: Rollout) -> None:
        """Appends an episode."""
        self._file.append(self._line(asked.env, rollout))

    def finish(self, episodes: Mapping[Place, Rollout]) -> None:
        """Rewrites the file with all its episodes in this order, so that the same evaluation writes the same file."""
        lines = (self._line(env, rollout) for (env, _), rollout in episodes.items())
        replace_file(self._path, map(encode_line, lines))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def _line(self, env: int, rollout: Rollout) -> dict[str, Any]:
        record = RolloutRecord(rollout, (), self._text(list(rollout.token_ids_T)))
        return {"env": env, **rollout_to_json(record)}


def read_episodes(path: Path) -> dict[Place, Rollout]:
    """The rollouts of a file by environment and task. Raises UserError if the file is missing."""
    found = ((line.get("env", 0), rollout_from_json(line).rollout) for line in read_lines(path))
    return {(env, rollout.task_id): rollout for env, rollout in found}


def past_episodes(path: Path) -> dict[Place, Rollout]:
    """The episodes of a file that need not be played again. Failed ones are left out: the cause may have passed."""
    found = read_episodes(path) if path.exists() else {}
    return {place: rollout for place, rollout in found.items() if not rollout.failure}
