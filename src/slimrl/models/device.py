"""Chooses the device, the number of CPU threads and the dtype to compute in. Knows nothing of models."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from slimrl.errors import UserError

# The timed matrix product: 512 tokens through an MLP projection of a 135M-parameter model, 0.9 GFLOP.
TOKENS, WIDE, NARROW = 512, 1536, 576
BUDGET_S = 0.04
# Maximum number of measurements. They stop when bfloat16 is faster. Another process may slow a measurement down.
ROUNDS = 5
# bfloat16 costs precision. With hardware support, it is at least 3 times as fast. A lead below this factor may be
# noise.
CLEARLY_FASTER = 1.2
NO_GPU = "Use --model.device cpu, or install the driver and a PyTorch built for CUDA."


@dataclass(frozen=True, slots=True)
class DtypeChoice:
    """The dtype to compute in, and the GFLOP/s of each timed dtype (empty without timing)."""

    dtype: torch.dtype
    gflops: Mapping[str, float] = field(default_factory=dict)


def choose_device(name: str) -> torch.device:
    """Return the device with this name; `auto` means the first GPU, or the CPU if there is no GPU.

    Raises UserError for a device that this machine lacks.
    """
    if name == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    wrong = UserError(f"model.device is `{name}`; it must be `auto`, `cpu`, `cuda` or, say, `cuda:1`.")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise wrong from error
    if device.type not in ("cpu", "cuda"):  # sampling sums probabilities in float64, which Metal lacks
        raise wrong
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        num = torch.cuda.device_count()
        raise UserError(f"model.device is `{name}`, but PyTorch sees {num} CUDA devices here. {NO_GPU}")
    return device


def to_device(values: Sequence[Any], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the numbers as a tensor on the device, without waiting for the copy.

    A GPU copies from pinned memory while the program continues. A copy from other memory first waits for all earlier
    work on the GPU.
    """
    tensor = torch.tensor(values, dtype=dtype)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def memory_of(device: torch.device) -> int:
    """Return the bytes of a GPU's memory; 0 for a CPU."""
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else 0


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype as in the settings, such as `bfloat16`."""
    return str(dtype).removeprefix("torch.")


def set_threads(num_threads: Literal["auto"] | int) -> None:
    """Set the number of CPU threads; `auto` keeps PyTorch's default, one per physical core."""
    if num_threads != "auto":
        torch.set_num_threads(num_threads)


def choose_dtype(device: torch.device) -> DtypeChoice:
    """Return the faster dtype, bfloat16 or float32, for a linear layer of training size.

    On a CPU, both dtypes are timed alternately, for up to 0.5 s. The timing ends after 0.1 s if bfloat16 is clearly
    faster in the first round. On a GPU, nothing is timed: the result is bfloat16 if the hardware supports it.
    """
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
        return DtypeChoice(torch.bfloat16 if native else torch.float32)
    if device.type != "cpu":
        return DtypeChoice(torch.float32)
    # Measure instead of reading CPU flags: emulated bfloat16 is slower than float32, and flags do not reveal the speed.
    bfloat16 = float32 = 0.0
    for _ in range(ROUNDS):
        bfloat16, float32 = max(bfloat16, _gflops(torch.bfloat16)), max(float32, _gflops(torch.float32))
        if bfloat16 > CLEARLY_FASTER * float32:
            break
    faster = torch.bfloat16 if bfloat16 > CLEARLY_FASTER * float32 else torch.float32
    return DtypeChoice(faster, {"bfloat16": bfloat16, "float32": float32})


@torch.inference_mode()
def _gflops(dtype: torch.dtype) -> float:
    """Return the highest speed of a matrix product in `BUDGET_S` seconds, in GFLOP/s. Slower products were delayed by
    other processes."""
    inputs = torch.ones(TOKENS, WIDE, dtype=dtype)
    weight = torch.ones(NARROW, WIDE, dtype=dtype)
    torch.nn.functional.linear(inputs[:32], weight)  # the first call prepares kernels
    best_s, start = float("inf"), time.perf_counter()
    while time.perf_counter() - start < BUDGET_S:
        before = time.perf_counter()
        torch.nn.functional.linear(inputs, weight)
        best_s = min(best_s, time.perf_counter() - before)
    return 2e-9 * TOKENS * WIDE * NARROW / best_s
