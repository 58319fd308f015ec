"""Describes devices and machines, including machines that are not available. `devices.toml` lists the known GPUs."""

import re
import tomllib
from dataclasses import dataclass
from importlib.resources import files
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

    `gpus` has the GPUs in the order of their indices, if they differ. Otherwise it is empty, and all GPUs are like
    `device`. `memory` is the main memory that a run may use, in bytes. `limit` names the source of the memory limit; it
    is empty if the limit is the machine's total memory.
    """

    name: str
    device: Device
    num_gpus: int
    memory: float
    limit: str = ""
    gpus: tuple[Device, ...] = ()

    def device_at(self, place: str) -> Device:
        """Return the GPU with the PyTorch name `place`, such as `cuda:1`. A name without a number means the first
        GPU."""
        number = int(place.partition(":")[2] or 0)
        return self.gpus[number] if number < len(self.gpus) else self.device


TABLE = tomllib.loads((files("slimrl_tools.plan") / "devices.toml").read_text(encoding="utf-8"))
DEVICES = {
    name: Device(name, "cuda", memory * GIB, bandwidth * GB, flops * TERA, float_flops * TERA)
    for name, (memory, bandwidth, flops, float_flops) in TABLE.items()
}


def find_machine(text: str) -> Machine:
    """Parse a machine, such as `rtx3090` or `h100x8`. Raises UserError, with the nearest name, for an unknown
    device."""
    text = text.lower()
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
    # The name does not state the main memory, so assume twice the GPUs' memory, which is usual. Only processes on the
    # CPU need it.
    return Machine(f"{name}x{num}", device, num, memory=max(32 * GIB, 2 * num * device.memory))
