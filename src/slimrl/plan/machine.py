"""This machine as a plan sees it: what computes, and the memory and disk that a run may have here.

A container or a batch system may give a process less memory than the machine has: control groups, version 1 and 2, and
`ulimit -v` are read, and the least counts.
"""

import os
import re
import resource
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from slimrl.models.device import choose_dtype
from slimrl.plan.devices import GIB, Device, Machine

ROOT = Path("/")
UNLIMITED = 2**60  # version 1 of control groups writes a number near 2^63 for no limit
COPIED = 1 << 26  # bytes that are copied to time the memory: more than caches hold


def this_machine(output_dir: Path, root: Path = ROOT) -> Machine:
    """This machine: its GPUs, or its CPU with the speeds measured in a fraction of a second. `root` is where `proc` and
    `sys` lie."""
    memory, limit = usable_memory(root)
    disk = free_disk(output_dir)
    if num := torch.cuda.device_count():
        found = torch.cuda.get_device_properties(0)
        native = torch.cuda.is_bf16_supported(including_emulation=False)
        # PyTorch tells neither bandwidth nor operations; these stand in where times are not measured.
        device = Device(found.name, "cuda", found.total_memory, 5e11, 5e13 if native else 1e13, 1e13)
        return Machine(f"this machine, {num} x {found.name}", device, num, memory, disk, limit)
    speeds = choose_dtype(torch.device("cpu")).gflops
    flops = {name: 1e9 * gflops for name, gflops in speeds.items()}
    cpu = Device("CPU", "cpu", memory, _bandwidth(), flops["bfloat16"], flops["float32"])
    return Machine(f"this machine, {torch.get_num_threads()} cores", cpu, 0, memory, disk, limit)


def usable_memory(root: Path = ROOT) -> tuple[float, str]:
    """The bytes of memory that this process may have at most, and what bounds them; empty for the machine itself."""
    total = _total_memory(root)
    limits = [*_control_groups(root)]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        limits.append((float(soft), "`ulimit -v`"))
    lowest, name = min(limits, default=(total, ""))
    return (lowest, name) if lowest < total else (total, "")


def _total_memory(root: Path) -> float:
    path = root / "proc" / "meminfo"
    if path.is_file() and (found := re.search(r"^MemTotal:\s+(\d+) kB", path.read_text(), re.MULTILINE)):
        return 1024.0 * int(found[1])
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _control_groups(root: Path) -> Iterator[tuple[float, str]]:
    """The limits of the control groups that this process is in, from its own up to the outermost."""
    membership = root / "proc" / "self" / "cgroup"
    if not membership.is_file():
        return
    for line in membership.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, name = root / "sys" / "fs" / "cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            base, name = root / "sys" / "fs" / "cgroup" / "memory", "memory.limit_in_bytes"
        else:
            continue
        # In a container the path may be that of the host: then what is mounted is the container's own group.
        parts = Path(path.lstrip("/"))
        for group in (parts, *parts.parents):
            file = base / group / name
            if file.is_file() and (text := file.read_text().strip()).isdecimal() and int(text) < UNLIMITED:
                yield float(text), f"a control group ({name})"


def free_disk(output_dir: Path) -> float:
    """The free bytes where a run will write."""
    there = next(path for path in (output_dir.absolute(), *output_dir.absolute().parents) if path.exists())
    return float(shutil.disk_usage(there).free)


def own_memory() -> float:
    """The bytes that this process has in memory: Python, PyTorch, transformers and slimrl, before a model is loaded."""
    statm = Path("/proc/self/statm")
    if not statm.is_file():
        return 0.8 * GIB
    return float(int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))


def _bandwidth() -> float:
    """The bytes a second that all cores read and write together, by the fastest of a few copies."""
    source = torch.zeros(COPIED // 4)
    target, best_s = torch.empty_like(source), float("inf")
    for _ in range(4):
        began = time.perf_counter()
        target.copy_(source)
        best_s = min(best_s, time.perf_counter() - began)
    return 2 * COPIED / best_s
