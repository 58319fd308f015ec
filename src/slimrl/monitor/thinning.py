"""Keeps the rollouts of a run within a bound on the disk, by leaving out steps evenly.

What remains are the newest steps, all of them, and of those before a sample that is spread over the whole run, which is
enough to see how the policy has changed.
"""

from collections.abc import Sequence
from pathlib import Path

from slimrl.monitor.rollouts import step_files

NEWEST = 10  # steps that are never left out
ROOM = 0.9  # of the bound, down to which files are deleted, so that not every step has to


def thin_rollouts(output_dir: Path, max_bytes: float) -> int:
    """Delete files of older steps if all together have more than `max_bytes`. Returns the number of steps deleted. The
    first step and the newest ones stay, whatever they take."""
    files = step_files(output_dir)
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
    """The older step, but for the first, whose neighbours are nearest to each other."""
    inner = range(1, len(steps) - NEWEST)
    return min((steps[place + 1] - steps[place - 1], steps[place]) for place in inner)[1]
