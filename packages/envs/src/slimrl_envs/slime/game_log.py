"""Records the games of a SLIME run as `slimrl rl` records its own, so that `scripts/analyze_questions.py` reads them.

Files are `rollouts/step_N.jsonl`, where N counts batches of started groups: SLIME numbers groups, and continues the
numbers when a run is resumed. With a filter that drops groups, N runs ahead of SLIME's own steps.
"""

from collections.abc import Callable
from pathlib import Path

from slimrl.io.files import LineFile
from slimrl.io.run_dir import RunDir
from slimrl.monitor.rollouts import RolloutRecord, rollout_to_json
from slimrl.types import Rollout


class GameLog:
    """Appends games to the files in `directory/rollouts`. `text` decodes token ids."""

    def __init__(self, directory: Path, groups_per_step: int, text: Callable[[list[int]], str]) -> None:
        self._directory, self._groups_per_step, self._text = directory, groups_per_step, text

    def add(self, group: int, rollout: Rollout) -> None:
        """Appends the game of a group. Raises UserError if it cannot be written."""
        record = RolloutRecord(rollout, (), self._text(list(rollout.token_ids_T)))
        file = LineFile(RunDir(self._directory).rollouts_of(group // self._groups_per_step), keep=True, digests=True)
        try:
            file.append(rollout_to_json(record))
        finally:
            file.close()
