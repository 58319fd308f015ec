"""Reads the resources that this process may use: memory and CPU cores.

A container or a batch system may limit a process's memory by control groups. In all functions, `root` is the directory
that contains `proc` and `sys`.
"""

import os
from pathlib import Path

import psutil

ROOT = Path("/")
LOOK_S = 0.1
LITTLE = 0.25  # no warning if at most this share of the threads lacks a free core


def memory_limit(root: Path = ROOT) -> float:
    """Return the lowest memory limit of this process's control groups (version 2) in bytes; 0 without a limit.

    In a container, the group's path may be a path on the host. In that case the mounted root directory is the
    container's group.
    """
    mount, membership = root / "sys" / "fs" / "cgroup", root / "proc" / "self" / "cgroup"
    limits = []
    for line in membership.read_text(encoding="utf-8").splitlines() if membership.is_file() else ():
        group = mount / line.removeprefix("0::/")
        for directory in (group, *group.parents) if line.startswith("0::/") else ():
            path = directory / "memory.max"
            if directory.is_relative_to(mount) and path.is_file():
                limits.append(path.read_text(encoding="utf-8").strip())
    return min((float(limit) for limit in limits if limit.isdecimal()), default=0.0)


def usable_memory(root: Path = ROOT) -> tuple[float, str]:
    """Return the bytes of memory that this process may use, and the name of the limit. The name is empty if the limit
    is the machine's total memory."""
    total, limit = float(psutil.virtual_memory().total), memory_limit(root)
    return (limit, "a control group (memory.max)") if 0 < limit < total else (total, "")


def own_memory() -> float:
    """Return the resident memory of this process in bytes."""
    return float(psutil.Process().memory_info().rss)


def load_note(num_threads: int) -> str:
    """Return a warning if other programs leave too few cores for `num_threads`, else an empty text. The measurement
    takes `LOOK_S` seconds, in which this process must not compute."""
    # macOS has no CPU affinity, so use all cores.
    cores = os.sched_getaffinity(0) if "sched_getaffinity" in vars(os) else {*range(os.cpu_count() or 1)}
    percent: list[float] = psutil.cpu_percent(LOOK_S, percpu=True)
    busy = sum(percent[core] for core in cores if core < len(percent)) / 100
    if num_threads - (len(cores) - busy) <= LITTLE * num_threads:
        return ""
    return f"other programs use {busy:.1f} of {len(cores)} cores: everything takes longer than on a quiet machine"
