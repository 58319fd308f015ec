"""Keeps the rollouts of a run within a bound on the disk, by leaving out steps evenly.

What remains are the newest steps, all of them, and of those before a sample that is spread over the whole run, which is
enough to see how the policy has changed.
"""

from pathlib import Path

NEWEST = 10  # steps that are never left out


def thin_rollouts(output_dir: Path, max_bytes: float) -> int:
    """Delete every second of the older steps' files until all together have at most `max_bytes`. Returns the number of
    steps deleted. The first step and the newest ones stay, whatever they take."""
    files: dict[str, list[Path]] = {}
    for path in (output_dir / "rollouts").glob("step_*"):
        files.setdefault(path.name.partition(".")[0], []).append(path)
    sizes = {step: sum(path.stat().st_size for path in paths) for step, paths in files.items()}
    older, deleted = sorted(files)[:-NEWEST], 0
    while sum(sizes.values()) > max_bytes and len(older) > 1:
        for step in older[1::2]:
            for path in files[step]:
                path.unlink(missing_ok=True)
            del sizes[step]
            deleted += 1
        older = older[::2]
    return deleted
