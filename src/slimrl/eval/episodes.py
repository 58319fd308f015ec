"""The episodes of an evaluation on disk, each as soon as it ends, so that an interrupted one can go on.

A file of rollouts as in `monitor/rollouts.py`; every line also has the number of its environment, `env`.
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
    """Open for adding episodes; what is there is kept, or else emptied. `text` shows token ids to a person."""

    def __init__(self, path: Path, text: Callable[[list[int]], str], keep: bool) -> None:
        self._path, self._text = path, text
        if keep:  # whole lines alone: a torn last one would spoil the one behind it
            replace_file(path, map(encode_line, read_lines(path)))
        self._file = LineFile(path, keep=keep)

    def add(self, asked: HeldOutTask, rollout: Rollout) -> None:
        self._file.append(self._line(asked.env, rollout))

    def finish(self, episodes: Mapping[Place, Rollout]) -> None:
        """Put the file in the order of these, which are all: the same evaluation writes the same file."""
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
    """The episodes that need not be played again. Failed ones are played again: what made them fail may have passed."""
    found = read_episodes(path) if path.exists() else {}
    return {place: rollout for place, rollout in found.items() if not rollout.failure}
