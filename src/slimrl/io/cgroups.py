"""What control groups let this process use of the machine: memory and cores. Reads versions 1 and 2.

`root` is where `proc` and `sys` lie.
"""

import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")
NO_LIMIT = 0.0
HUGE = 2**60  # version 1 writes about 2**63 where there is no limit


def memory_limit(root: Path = ROOT) -> tuple[float, str]:
    """The bytes that this process may have, and the name of the file that says so; 0 and no name without a limit."""
    found = []
    for controller, name in (("", "memory.max"), ("memory", "memory.limit_in_bytes")):
        for path in _directories(controller, root):
            words = _words(path / name)
            if words and words[0].isdecimal() and int(words[0]) < HUGE:
                found.append((float(words[0]), name))
    return min(found, default=(NO_LIMIT, ""))


def cpu_limit(root: Path = ROOT) -> float:
    """The cores that this process may use at a time, which may be a fraction; 0 without a limit."""
    limits = []
    for path in _directories("", root):
        if (words := _words(path / "cpu.max"))[:1] not in ([], ["max"]):
            limits.append(float(words[0]) / float(words[1]))
    for path in _directories("cpu", root):
        quota, period = (_words(path / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        if quota and period and float(quota[0]) > 0:
            limits.append(float(quota[0]) / float(period[0]))
    return min(limits, default=NO_LIMIT)


def _directories(controller: str, root: Path) -> Iterator[Path]:
    """The directories of this process's group and of those above it, in version 1 of a controller, or in version 2.

    In a container the group's path may be that of the host: then what is mounted is the container's own group.
    """
    mount = root / "sys" / "fs" / "cgroup" / controller
    for line in _lines(root / "proc" / "self" / "cgroup"):
        _, controllers, group = line.split(":", 2)
        if controller in controllers.split(","):
            path = mount / group.lstrip("/")
            yield from (one for one in (path, *path.parents) if one.is_relative_to(mount))


def _words(file: Path) -> list[str]:
    return (_lines(file) or [""])[0].split()


def _lines(file: Path) -> list[str]:
    if not os.access(file, os.R_OK):
        return []
    return file.read_text(encoding="ascii", errors="replace").splitlines()
