"""A table of devices, to plan for machines that are not available: memory, bandwidth, and operations per second.

The manufacturers' numbers for dense matrices (without sparsity), with sums in float32, as PyTorch computes:

- RTX 30: "NVIDIA Ampere GA102 GPU Architecture", tables 2 and 9; RTX 40: "NVIDIA Ada GPU Architecture", appendix A;
  RTX 50: "NVIDIA RTX Blackwell GPU Architecture", appendix A
- T4, A10, A100, L4, L40S, RTX A6000, RTX 6000 Ada, H100, H200: the data sheet of each, halved if it prints only numbers
  with sparsity; B200: "NVIDIA DGX B200 datasheet", an eighth of it; A10G: AWS, instances G5

Operations are in bfloat16, except for the T4: it lacks bfloat16 and computes in float32.
"""

import re
from dataclasses import dataclass
from typing import Literal

from slimrl.errors import UserError, nearest

GB, TERA = 1e9, 1e12
GIB = 2**30
RESERVED = 0.6 * GB  # bytes of a GPU's memory for the CUDA context and the libraries' kernels
MOST = 64  # largest number of devices of a machine


@dataclass(frozen=True, slots=True)
class Device:
    """A CPU or GPU: its memory in bytes, its bandwidth in bytes per second, and its operations per second.

    `flops` counts operations of matrix products in bfloat16, `float_flops` in float32.
    """

    name: str
    kind: Literal["cpu", "cuda"]
    memory: float
    bandwidth: float
    flops: float
    float_flops: float

    @property
    def has_bfloat16(self) -> bool:
        """Return True if `model.dtype = "auto"` selects bfloat16 on this device."""
        return self.flops > 1.2 * self.float_flops


@dataclass(frozen=True, slots=True)
class Machine:
    """A host with or without GPUs. A run computes on `device`, which is one of the GPUs or the CPU.

    `gpus` lists the GPUs by number; it is empty if there are no GPUs, or if all GPUs are like `device`. `memory` is the
    main memory that a run may use, and `disk` the free space of its directory, in bytes; 0 means unknown. `limit` names
    the source of the memory limit; it is empty if only the machine's size limits the memory.
    """

    name: str
    device: Device
    num_gpus: int
    memory: float
    disk: float = 0.0
    limit: str = ""
    gpus: tuple[Device, ...] = ()

    def device_at(self, place: str) -> Device:
        """Return the GPU with the PyTorch name `place`, such as `cuda:1`. A name without a number means the first
        GPU."""
        number = int(place.partition(":")[2] or 0)
        return self.gpus[number] if number < len(self.gpus) else self.device


def _gpu(name: str, memory_gib: float, gb_per_s: float, tflops: float, float_tflops: float) -> tuple[str, Device]:
    return name, Device(name, "cuda", memory_gib * GIB, gb_per_s * GB, tflops * TERA, float_tflops * TERA)


DEVICES = dict(
    (
        _gpu("rtx3060", 12, 360, 25.6, 12.7),
        _gpu("rtx3070", 8, 448, 40.6, 20.3),
        _gpu("rtx3080", 10, 760, 59.5, 29.8),
        _gpu("rtx3090", 24, 936, 71, 35.6),
        _gpu("rtx4060ti16g", 16, 288, 44.1, 22.1),
        _gpu("rtx4070", 12, 504, 58.3, 29.1),
        _gpu("rtx4080", 16, 717, 97.5, 48.7),
        _gpu("rtx4090", 24, 1008, 165, 82.6),
        _gpu("rtx5080", 16, 960, 112.6, 56.3),
        _gpu("rtx5090", 32, 1792, 209.5, 104.8),
        _gpu("rtxa6000", 48, 768, 154.8, 38.7),
        _gpu("rtx6000ada", 48, 960, 364, 91.1),
        _gpu("t4", 16, 320, 8.1, 8.1),
        _gpu("a10", 24, 600, 125, 31.2),
        _gpu("a10g", 24, 600, 70, 35),
        _gpu("l4", 24, 300, 121, 30.3),
        _gpu("l40s", 48, 864, 362, 91.6),
        _gpu("a100", 80, 2039, 312, 19.5),
        _gpu("a100-40g", 40, 1555, 312, 19.5),
        _gpu("h100", 80, 3350, 989, 67),
        _gpu("h200", 141, 4800, 989, 67),
        _gpu("b200", 180, 8000, 2250, 75),
    )
)


def find_machines(text: str) -> list[Machine]:
    """Parse a list of machines, such as `rtx3090x1,h100x8`. Raises UserError, with the nearest name, for an unknown
    device."""
    return [_machine(part.strip().lower()) for part in text.split(",")]


def _machine(text: str) -> Machine:
    found = None if text in DEVICES else re.fullmatch(r"(.+?)x(\d{1,3})", text)
    name, num = (found[1], int(found[2])) if found else (text, 1)
    if name not in DEVICES:
        raise UserError(
            f"--on names `{text}`, and the table has no device `{name}`.{nearest(name, DEVICES)} A number of them is "
            "written behind it, as in `h100x8`."
        )
    if not 1 <= num <= MOST:
        raise UserError(f"--on names `{text}`: a machine has 1 to {MOST} of them.")
    device = DEVICES[name]
    # A name does not state the main memory. Twice the GPUs' memory is usual, and only the parts on the CPU need it.
    return Machine(f"{name}x{num}", device, num, memory=max(32 * GIB, 2 * num * device.memory))
