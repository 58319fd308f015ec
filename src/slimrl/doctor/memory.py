"""Memory: what the machine has, what is free, and what a container or a job may have of it."""

from pathlib import Path

from slimrl.io.cgroups import memory_limit
from slimrl.monitor.findings import Finding, Level

MEMINFO = Path("/proc/meminfo")
GB = 1e9
BYTES_PER_WEIGHT = 14  # in full fine-tuning: weights, gradients, and the optimizer's masters and moments
SPARE = 1.5e9  # the program itself and the key-value cache of a small model
LOW = 4e9


def probe() -> list[Finding]:
    """A finding on memory."""
    if not MEMINFO.is_file():
        return [Finding("memory", Level.NOTE, "how much there is cannot be read here")]
    return [memory_finding(*read_meminfo(MEMINFO.read_text(encoding="ascii")), memory_limit()[0])]


def read_meminfo(text: str) -> tuple[float, float]:
    """All memory and what is available of it, in bytes, from the text of /proc/meminfo.

    >>> read_meminfo("MemTotal: 8 kB\\nMemAvailable: 2 kB")
    (8192.0, 2048.0)
    """
    fields = {name: value.split()[0] for name, _, value in (line.partition(":") for line in text.splitlines())}
    return 1024.0 * int(fields["MemTotal"]), 1024.0 * int(fields["MemAvailable"])


def memory_finding(total: float, available: float, limit: float) -> Finding:
    """What can be trained in the memory that is free; a `limit` of 0 is none."""
    free = min(available, limit) if limit else available
    within = f", of which this container may have {limit / GB:.1f}" if 0 < limit < total else ""
    text = f"{available / GB:.1f} of {total / GB:.1f} GB free{within}"
    weights = max(0.0, free - SPARE) / BYTES_PER_WEIGHT
    text += f": about {weights / 1e6:,.0f} million weights can be trained in full, and more by LoRA"
    if free < LOW:
        remedy = "End other programs, or take fewer `inference.max_slots` and LoRA (`--model.lora.rank 16`)."
        return Finding("memory", Level.NOTE, text, remedy)
    return Finding("memory", Level.OK, text)
