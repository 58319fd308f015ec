"""Contains the probes that need PyTorch: device, number format, threads, load, C++ compiler, CPU kernels and GPUs."""

import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping

import torch

from slimrl.errors import UserError
from slimrl.io.cache import cache_root
from slimrl.models.device import NARROW, TOKENS, WIDE, choose_device, choose_dtype, dtype_name
from slimrl.models.native import ops
from slimrl.models.native.build import compile_kernels, find_compiler, first_error
from slimrl.monitor.findings import Finding, Level
from slimrl_tools.system import cpu_limit, load_note, num_cores

GB = 1e9
TIMEOUT_S = 10.0  # time limit of a program that is called, such as nvidia-smi
PRODUCT = f"a product of {TOKENS} x {WIDE} by {WIDE} x {NARROW}"
SLOW = 20.0  # GFLOP/s; even an old CPU core is faster if no other program uses it
INSTALL = (
    "`uv sync --inexact --extra compiler` or `pip install 'slimrl[compiler]'` (Linux), `apt install g++` (Debian, "
    "Ubuntu), `dnf install gcc-c++` (Fedora), `xcode-select --install` (macOS)"
)
QUERY = "name,driver_version,memory.total,compute_cap"
MIN_CAPABILITY = (7, 0)  # PyTorch's builds for CUDA 12.8 and later support no GPU before Volta
BUILD = "Install a PyTorch for CUDA: `uv pip install --torch-backend auto torch`, see docs/install.md"


def compute() -> Iterator[Finding]:
    """Examine the device, the number format, the threads, and the load from other programs."""
    load = load_note(torch.get_num_threads())  # measure the load before this function computes
    device = choose_device("auto")
    choice = choose_dtype(device)
    why = "the first GPU that PyTorch sees" if device.type == "cuda" else "PyTorch sees no GPU"
    yield Finding("device", Level.OK, f"{device}: {why}; another by --model.device")
    yield dtype_finding(dtype_name(choice.dtype), choice.gflops)
    if device.type == "cpu":
        yield threads_finding(torch.get_num_threads(), num_cores(), cpu_limit())
    remedy = "End them, or wait (`top` lists them); the speeds above are measured beside them."
    yield Finding("load", Level.NOTE, load, remedy) if load else Finding("load", Level.OK, "the cores are free")


def dtype_finding(dtype: str, gflops: Mapping[str, float]) -> Finding:
    """Return a finding on the number format `dtype` and the reason for it. `gflops` maps formats to measured speeds,
    and is empty on a GPU."""
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


def threads_finding(num_threads: int, num_cores: int, limit: float) -> Finding:
    """Return a finding that compares `num_threads` with the number of cores, and with a container's `limit` in cores. A
    `limit` of 0 means no limit."""
    if 0 < limit < num_threads:
        text = f"{num_threads} threads, and this container may use {limit:g} cores: they wait for each other"
        return Finding("threads", Level.NOTE, text, f"--model.num_threads {max(1, int(limit))}")
    if num_threads > num_cores:
        text = f"{num_threads} threads on {num_cores} cores wait for each other"
        return Finding("threads", Level.NOTE, text, f"--model.num_threads {num_cores}, or mend OMP_NUM_THREADS")
    text = f"{num_threads} on {num_cores} logical cores; more or fewer by --model.num_threads"
    return Finding("threads", Level.OK, text)


def kernels() -> Iterator[Finding]:
    """Examine the C++ compiler, and compile slimrl's kernels for this CPU with it."""
    command = find_compiler()
    if command is None:
        text = (
            "there is none: no kernels for this CPU, so a step takes up to twice as long there; and on a GPU no "
            "FlexAttention, whose Triton needs one too"
        )
        yield Finding("compiler", Level.NOTE, text, f"{INSTALL}, or name one in $CXX")
        return
    if shutil.which(command[0]) is None:
        text = f"$CXX names `{shlex.join(command)}`, which is not on the PATH"
        yield Finding("compiler", Level.PROBLEM, text, f"Mend or unset CXX; or {INSTALL}")
        return
    version = (_lines_of(*command, "--version") or ["of no known version"])[0]
    yield Finding("compiler", Level.OK, f"{shlex.join(command)}: {version}")
    began = time.perf_counter()
    try:
        path = compile_kernels(command, cache_root() / "kernels")
    except UserError as error:  # the message explains how to repair the cache
        yield Finding("kernels", Level.PROBLEM, str(error))
    except (OSError, subprocess.SubprocessError) as error:
        slower = "PyTorch's operations are used, which takes up to twice as long"
        text = f"they cannot be compiled, so {slower}: {first_error(error)}"
        yield Finding("kernels", Level.PROBLEM, text, f"Another compiler, named in $CXX; or {INSTALL}")
    else:
        tiles = ops.has_tiles(torch.zeros(1, dtype=torch.bfloat16))
        use = "with tiles of AMX or AVX512-BF16" if tiles else "for vectors; this CPU has no tiles"
        yield Finding("kernels", Level.OK, f"{use}, ready in {time.perf_counter() - began:.1f} s ({path.parent})")


def gpu() -> Iterator[Finding]:
    """Examine the GPUs that the driver reports, and check whether PyTorch can use them."""
    smi = shutil.which("nvidia-smi")
    shown = _lines_of(smi, f"--query-gpu={QUERY}", "--format=csv,noheader") if smi else []
    cards = "; ".join(shown)
    if torch.cuda.is_available():
        driver = shown[0].split(", ")[1] if shown else "unknown"
        yield from (card_finding(number, driver) for number in range(torch.cuda.device_count()))
    elif not shown:
        yield Finding("GPU", Level.OK, "none: everything is computed on the CPU")
    elif not torch.version.cuda:
        text = f"the driver shows {cards}, and this PyTorch is built for CPUs"
        yield Finding("GPU", Level.PROBLEM, text, BUILD)
    else:
        text = f"the driver shows {cards}, and PyTorch (CUDA {torch.version.cuda}) cannot use them"
        older = "the driver is older than this CUDA: update it, or take an older build."
        yield Finding("GPU", Level.PROBLEM, text, f"Look at CUDA_VISIBLE_DEVICES; else {older}")


def card_finding(number: int, driver: str) -> Finding:
    """Return a finding on the properties of GPU `number`, and on whether slimrl can use it."""
    free, total = torch.cuda.mem_get_info(number)
    capability = torch.cuda.get_device_capability(number)
    with torch.cuda.device(number):
        has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    subject = f"GPU {number}"
    text = (
        f"{torch.cuda.get_device_name(number)}, {free / GB:.1f} of {total / GB:.1f} GB free, compute capability "
        f"{'.'.join(map(str, capability))}, driver {driver}"
    )
    if capability < MIN_CAPABILITY:
        return Finding(subject, Level.PROBLEM, f"{text}: too old for PyTorch's builds", "--model.device cpu")
    if not has_bf16:
        return Finding(subject, Level.NOTE, f"{text}; no bfloat16: float32 is used", "A GPU since Ampere has it.")
    return Finding(subject, Level.OK, f"{text}; bfloat16 is used")


def _lines_of(*command: str) -> list[str]:
    """Return the lines that a program prints, or no lines if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    return done.stdout.strip().splitlines() if done.returncode == 0 else []
