"""What a control group lets this process use of the machine: memory and cores. Reads versions 1 and 2."""

import os
from collections.abc import Iterator
from pathlib import Path

ROOT, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
NO_LIMIT = 0.0
HUGE = 2**60  # version 1 writes about 2**63 where there is no limit


def memory_limit() -> float:
    """The bytes that this process may have; 0 without a limit."""
    values = [*_numbers("memory.max", ""), *_numbers("memory.limit_in_bytes", "memory")]
    return min((value for value in values if value < HUGE), default=NO_LIMIT)


def cpu_limit() -> float:
    """The cores that this process may use at a time, which may be a fraction; 0 without a limit."""
    limits = []
    for path in _directories(""):
        if (words := _words(path / "cpu.max"))[:1] not in ([], ["max"]):
            limits.append(float(words[0]) / float(words[1]))
    for path in _directories("cpu"):
        quota, period = (_words(path / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        if quota and period and float(quota[0]) > 0:
            limits.append(float(quota[0]) / float(period[0]))
    return min(limits, default=NO_LIMIT)


def _numbers(name: str, controller: str) -> Iterator[float]:
    for path in _directories(controller):
        words = _words(path / name)
        if words and words[0].isdecimal():
            yield float(words[0])


def _directories(controller: str) -> Iterator[Path]:
    """The directories of this process's group and of those above it, in version 1 of a controller; inside of a
    container the mounted root is the group itself."""
    root = ROOT / controller if controller else ROOT
    for line in _lines(OWN):
        _, controllers, group = line.split(":", 2)
        if controller in controllers.split(","):
            path = root / group.lstrip("/")
            yield from (one for one in (path, *path.parents) if one.is_relative_to(root))


def _words(file: Path) -> list[str]:
    return (_lines(file) or [""])[0].split()


def _lines(file: Path) -> list[str]:
    if not os.access(file, os.R_OK):
        return []
    return file.read_text(encoding="ascii", errors="replace").splitlines()
