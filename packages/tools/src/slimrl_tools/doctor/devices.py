"""Contains the probes that need PyTorch: device, number format, threads, load, CPU kernels and GPUs."""

import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping

import torch

from slimrl.errors import UserError
from slimrl.io.cache import cache_root
from slimrl.models.device import NARROW, TOKENS, WIDE, choose_device, choose_dtype, dtype_name
from slimrl.models.native import ops
from slimrl.models.native.build import compile_kernels, find_compiler, first_error
from slimrl_tools.findings import Finding, Level
from slimrl_tools.system import load_note

GB = 1e9
TIMEOUT_S = 10.0  # time limit of nvidia-smi
PRODUCT = f"a product of {TOKENS} x {WIDE} by {WIDE} x {NARROW}"
INSTALL = "`apt install g++` (Debian, Ubuntu), `dnf install gcc-c++` (Fedora), `xcode-select --install` (macOS)"
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
        text = f"{torch.get_num_threads()}; a container of fewer cores needs --model.num_threads"
        yield Finding("threads", Level.OK, text)
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
    text = f"{dtype}, since bfloat16 is {ratio:.1f} times as fast in {PRODUCT} (GFLOP/s: {speeds})"
    return Finding("number format", Level.OK, text)


def kernels() -> Iterator[Finding]:
    """Compile slimrl's kernels for this CPU, as a run does."""
    command = find_compiler()
    if command is None:
        text = (
            "there is no C++ compiler, so a step takes up to twice as long on this CPU; and on a GPU there is no "
            "FlexAttention, whose Triton needs one too"
        )
        yield Finding("kernels", Level.NOTE, text, f"{INSTALL}, or name one in $CXX")
        return
    try:
        compile_kernels(command, cache_root() / "kernels")
    except (OSError, subprocess.SubprocessError, UserError) as error:
        text = f"`{shlex.join(command)}` cannot compile them, so a step takes up to twice as long: {first_error(error)}"
        yield Finding("kernels", Level.PROBLEM, text, f"Another compiler, named in $CXX; or {INSTALL}")
    else:
        tiles = ops.has_tiles(torch.zeros(1, dtype=torch.bfloat16))
        use = "with tiles of AMX or AVX512-BF16" if tiles else "for vectors; this CPU has no tiles"
        yield Finding("kernels", Level.OK, use)


def gpu() -> Iterator[Finding]:
    """Examine the GPUs that the driver reports, and check whether PyTorch can use them."""
    if torch.cuda.is_available():
        yield from map(card_finding, range(torch.cuda.device_count()))
        return
    smi = shutil.which("nvidia-smi")
    shown = _lines_of(smi, f"--query-gpu={QUERY}", "--format=csv,noheader") if smi else []
    cards = "; ".join(shown)
    if not shown:
        yield Finding("GPU", Level.OK, "none: everything is computed on the CPU")
    elif not torch.version.cuda:
        text = f"the driver shows {cards}, and this PyTorch is built for CPUs"
        yield Finding("GPU", Level.PROBLEM, text, BUILD)
    else:
        text = f"the driver shows {cards}, and PyTorch (CUDA {torch.version.cuda}) cannot use them"
        older = "the driver is older than this CUDA: update it, or take an older build."
        yield Finding("GPU", Level.PROBLEM, text, f"Look at CUDA_VISIBLE_DEVICES; else {older}")


def card_finding(number: int) -> Finding:
    """Return a finding on the properties of GPU `number`, and on whether slimrl can use it."""
    free, total = torch.cuda.mem_get_info(number)
    capability = torch.cuda.get_device_capability(number)
    with torch.cuda.device(number):
        has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    subject = f"GPU {number}"
    text = (
        f"{torch.cuda.get_device_name(number)}, {free / GB:.1f} of {total / GB:.1f} GB free, compute capability "
        f"{'.'.join(map(str, capability))}"
    )
    if capability < MIN_CAPABILITY:
        return Finding(subject, Level.PROBLEM, f"{text}: too old for PyTorch's builds", "--model.device cpu")
    if not has_bf16:
        return Finding(subject, Level.NOTE, f"{text}; no bfloat16: float32 is used", "A GPU since Ampere has it.")
    return Finding(subject, Level.OK, f"{text}; bfloat16 is used")


def _lines_of(*command: str) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    return done.stdout.strip().splitlines() if done.returncode == 0 else []
