"""Describes this machine for a plan: its devices, and the memory and disk that a run may use (`system.py`)."""

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import torch

from slimrl.models.device import choose_dtype
from slimrl_tools.plan.devices import Device, Machine
from slimrl_tools.system import ROOT, free_disk, usable_memory

COPIED = 1 << 26  # bytes per copy to time the memory: more than caches hold


def this_machine(output_dir: Path, device: str = "auto", root: Path = ROOT) -> Machine:
    """Return this machine for `model.device` = `device`: its GPUs, or its CPU with speeds measured in a fraction of a
    second. `root` is the parent of `proc` and `sys`."""
    memory, limit = usable_memory(root)
    disk, gpus = free_disk(output_dir), _gpus()
    if gpus and device != "cpu":
        counts = Counter(gpu.name for gpu in gpus)
        name = f"this machine, {', '.join(f'{num} x {name}' for name, num in counts.items())}"
        machine = Machine(name, gpus[0], len(gpus), memory, disk, limit, gpus)
        return replace(machine, device=machine.device_at(device))
    speeds = choose_dtype(torch.device("cpu")).gflops
    flops = {name: 1e9 * gflops for name, gflops in speeds.items()}
    cpu = Device("CPU", "cpu", memory, _bandwidth(), flops["bfloat16"], flops["float32"])
    # List the GPUs, as a teacher may be on one.
    return Machine(f"this machine, {torch.get_num_threads()} cores", cpu, 0, memory, disk, limit, gpus)


def _gpus() -> tuple[Device, ...]:
    """Return the GPUs that PyTorch sees. It reports neither bandwidth nor operations: the numbers here are placeholders
    where times are not measured."""
    if not (num := torch.cuda.device_count()):
        return ()
    flops = 5e13 if torch.cuda.is_bf16_supported(including_emulation=False) else 1e13
    found = [torch.cuda.get_device_properties(index) for index in range(num)]
    return tuple(Device(one.name, "cuda", one.total_memory, 5e11, flops, 1e13) for one in found)


def _bandwidth() -> float:
    """Return the bytes per second that all cores read and write together, from the fastest of four copies."""
    source = torch.zeros(COPIED // 4)
    target, best_s = torch.empty_like(source), float("inf")
    for _ in range(4):
        began = time.perf_counter()
        target.copy_(source)
        best_s = min(best_s, time.perf_counter() - began)
    return 2 * COPIED / best_s
