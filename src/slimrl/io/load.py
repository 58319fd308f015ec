"""The load by other programs: a run that shares its cores with them takes longer than predicted."""

import os
import time
from pathlib import Path

STAT = Path("/proc/stat")  # of Linux alone
LOOK_S = 0.1
LITTLE = 0.25  # the share of the threads that may lack a core without a note


def load_note(num_threads: int) -> str:
    """A line on other programs that leave so many threads too few cores; empty if they leave enough. It takes
    `LOOK_S`, in which this process must not compute."""
    return describe_load(num_threads, busy_cores(), num_cores())


def busy_cores() -> float:
    """The number of cores of this process that are busy while it sleeps for `LOOK_S`. 0 on systems other than Linux."""
    before = _ticks()
    time.sleep(LOOK_S)
    return sum(max(0.0, 1 - idle / max(1, whole)) for idle, whole in map(_passed, before, _ticks()))


def describe_load(num_threads: int, busy: float, num_cores: int) -> str:
    """The line for so many threads, where `busy` of the cores are in use; empty if enough are free."""
    if num_threads - (num_cores - busy) <= LITTLE * num_threads:
        return ""
    return f"other programs use {busy:.1f} of {num_cores} cores: everything takes longer than on a quiet machine"


def num_cores() -> int:
    """The number of cores that this process may use."""
    # macOS has no affinity.
    return len(os.sched_getaffinity(0)) if "sched_getaffinity" in vars(os) else os.cpu_count() or 1


def _ticks() -> list[tuple[int, int]]:
    """The idle ticks and all ticks so far, for each core of this process."""
    own = {f"cpu{number}" for number in os.sched_getaffinity(0)} if STAT.is_file() else set()
    lines = [line.split() for line in STAT.read_text().splitlines()] if own else []
    numbers = [[int(text) for text in fields[1:9]] for fields in lines if fields[0] in own]
    return [(ticks[3] + ticks[4], sum(ticks)) for ticks in numbers]  # the fourth is idle, the fifth waits for a disk


def _passed(before: tuple[int, int], after: tuple[int, int]) -> tuple[int, int]:
    return after[0] - before[0], after[1] - before[1]
