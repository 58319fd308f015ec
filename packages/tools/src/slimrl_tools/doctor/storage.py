"""Disk: room for runs and for the cache, which must be writable; and shared memory."""

import os
import shutil
from pathlib import Path

from slimrl.io.cache import cache_root
from slimrl.monitor.findings import Finding, Level

GB = 1e9
LOW, FULL = 10e9, 1e9  # the first recipe leaves about 6 GB
SHARED, LOW_SHARED = Path("/dev/shm"), 0.5e9


def probe() -> list[Finding]:
    """Findings on the disk of runs, the cache and shared memory."""
    cache = cache_root()
    found = [_look("disk", Path.cwd(), "--output_dir"), _look("cache", cache, "the variable SLIMRL_CACHE")]
    if SHARED.is_dir():
        found.append(shm_finding(shutil.disk_usage(SHARED).free))
    return found


def _look(subject: str, directory: Path, chosen_by: str) -> Finding:
    there = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    return disk_finding(subject, directory, shutil.disk_usage(there).free, os.access(there, os.W_OK), chosen_by)


def disk_finding(subject: str, directory: Path, free: float, is_writable: bool, chosen_by: str) -> Finding:
    """Whether there is room in a directory, and whether it can be written to."""
    if not is_writable:
        text, remedy = f"{directory} cannot be written to", f"Mend its permissions, or name another by {chosen_by}."
        return Finding(subject, Level.PROBLEM if subject == "cache" else Level.NOTE, text, remedy)
    text = f"{free / GB:.1f} GB free in {directory}"
    if free < LOW:
        remedy = (
            f"Make room, or name a directory elsewhere by {chosen_by}: a run of the first recipe leaves about 6 GB."
        )
        return Finding(subject, Level.PROBLEM if free < FULL else Level.NOTE, text, remedy)
    return Finding(subject, Level.OK, text)


def shm_finding(free: float) -> Finding:
    """Whether there is shared memory, over which GPUs of one machine and vLLM's processes talk."""
    text = f"{free / GB:.2f} GB free in {SHARED}"
    if free < LOW_SHARED:
        remedy = "Start the container with `--shm-size 8g` before you train on several GPUs or sample with vLLM."
        return Finding("shared memory", Level.NOTE, text, remedy)
    return Finding("shared memory", Level.OK, text)
