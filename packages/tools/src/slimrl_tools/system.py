"""Reads the resources that this process may use: memory, disk and CPU cores.

A container or a batch system may limit a process to a part of the machine. This module reads control groups and `ulimit
-v`, and applies the lowest limit. In all functions, `root` is the directory that contains `proc` and `sys`.
"""

import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil

ROOT = Path("/")
NO_LIMIT = 0.0
LOOK_S = 0.1
LITTLE = 0.25  # no warning if at most this share of the threads lacks a free core


def memory_limit(root: Path = ROOT) -> float:
    """Return the memory limit of this process's control groups in bytes; 0 without a limit."""
    limits = [float(limit) for limit, *_ in _read_groups("memory.max", root) if limit.isdecimal()]
    return min(limits, default=NO_LIMIT)


def usable_memory(root: Path = ROOT) -> tuple[float, str]:
    """Return the bytes of memory that this process may use, and the name of the limit, such as `ulimit -v`. The name is
    empty if the limit is the machine's total memory."""
    total = float(psutil.virtual_memory().total)
    of_group = memory_limit(root)
    limits = [(of_group, "a control group (memory.max)")] if of_group else []
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        limits.append((float(soft), "`ulimit -v`"))
    lowest, name = min(limits, default=(total, ""))
    return (lowest, name) if lowest < total else (total, "")


def free_disk(output_dir: Path) -> float:
    """Return the free bytes on the disk of `output_dir`, which may not exist yet."""
    there = next(path for path in (output_dir.absolute(), *output_dir.absolute().parents) if path.exists())
    return float(shutil.disk_usage(there).free)


def own_memory() -> float:
    """Return the resident memory of this process in bytes."""
    return float(psutil.Process().memory_info().rss)


def cpu_limit(root: Path = ROOT) -> float:
    """Return the CPU limit of this process's control groups in cores, possibly a fraction; 0 without a limit."""
    limits = [float(quota) / float(period) for quota, period in _read_groups("cpu.max", root) if quota != "max"]
    return min(limits, default=NO_LIMIT)


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


def _read_groups(name: str, root: Path) -> Iterator[list[str]]:
    """Yield the words of the file `name`, first from this process's control group (version 2), then from each parent
    group that has this file.

    In a container, the group's path may be a path on the host. In that case the mounted root directory is the
    container's group.
    """
    mount, membership = root / "sys" / "fs" / "cgroup", root / "proc" / "self" / "cgroup"
    for line in membership.read_text(encoding="utf-8").splitlines() if membership.is_file() else ():
        group = mount / line.removeprefix("0::/")
        for directory in (group, *group.parents) if line.startswith("0::/") else ():
            if directory.is_relative_to(mount) and (directory / name).is_file():
                yield (directory / name).read_text(encoding="utf-8").split()
