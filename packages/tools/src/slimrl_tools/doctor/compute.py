"""The device, the number format and the threads that a run would take, with the speeds that decide it."""

from collections.abc import Mapping

import torch

from slimrl.models.device import NARROW, TOKENS, WIDE, choose_device, choose_dtype, dtype_name
from slimrl.monitor.findings import Finding, Level
from slimrl_tools.system import cpu_limit, load_note, num_cores

PRODUCT = f"a product of {TOKENS} x {WIDE} by {WIDE} x {NARROW}"
SLOW = 20.0  # GFLOP/s, less than an old core has


def probe() -> list[Finding]:
    """Findings on the device, the number format, the threads and the load."""
    load = load_note(torch.get_num_threads())  # before anything here computes
    device = choose_device("auto")
    choice = choose_dtype(device)
    why = "the first GPU that PyTorch sees" if device.type == "cuda" else "PyTorch sees no GPU"
    found = [Finding("device", Level.OK, f"{device}: {why}; another by --model.device")]
    found.append(dtype_finding(dtype_name(choice.dtype), choice.gflops))
    if device.type == "cpu":
        found.append(threads_finding(torch.get_num_threads(), num_cores(), cpu_limit()))
    return [*found, load_finding(load)]


def dtype_finding(dtype: str, gflops: Mapping[str, float]) -> Finding:
    """The number format, and why."""
    if not gflops:
        why = "which this GPU computes in" if dtype == "bfloat16" else "as this GPU does not compute in bfloat16"
        return Finding("number format", Level.OK, f"{dtype}, {why}")
    speeds = ", ".join(f"{name} {speed:.0f}" for name, speed in gflops.items())
    ratio = gflops["bfloat16"] / gflops["float32"]
    why = f"bfloat16 is {ratio:.1f} times as fast" if dtype == "bfloat16" else "bfloat16 is not clearly faster"
    text = f"{dtype}, since {why} in {PRODUCT} (GFLOP/s: {speeds})"
    if gflops[dtype] < SLOW:
        remedy = "Run it again when nothing else computes here: two busy programs slow each other down many times."
        return Finding("number format", Level.NOTE, text, remedy)
    return Finding("number format", Level.OK, text)


def load_finding(note: str) -> Finding:
    """The finding on other programs: a note with this text, or that the cores are free if it is empty."""
    remedy = "End them, or wait (`top` lists them); the speeds above are measured beside them."
    return Finding("load", Level.NOTE, note, remedy) if note else Finding("load", Level.OK, "the cores are free")


def threads_finding(num_threads: int, num_cores: int, limit: float) -> Finding:
    """The number of threads against the cores, and against those that a container may use; a `limit` of 0 is none."""
    if 0 < limit < num_threads:
        text = f"{num_threads} threads, and this container may use {limit:g} cores: they wait for each other"
        return Finding("threads", Level.NOTE, text, f"--model.num_threads {max(1, int(limit))}")
    if num_threads > num_cores:
        text = f"{num_threads} threads on {num_cores} cores wait for each other"
        return Finding("threads", Level.NOTE, text, f"--model.num_threads {num_cores}, or mend OMP_NUM_THREADS")
    return Finding(
        "threads", Level.OK, f"{num_threads} on {num_cores} logical cores; more or fewer by --model.num_threads"
    )
