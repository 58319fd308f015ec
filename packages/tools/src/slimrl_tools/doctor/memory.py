"""Memory: what the machine has, what is free, and what a container or a job may have of it."""

import psutil

from slimrl.monitor.findings import Finding, Level
from slimrl_tools.system import memory_limit

GB = 1e9
BYTES_PER_WEIGHT = 14  # in full fine-tuning: weights, gradients, and the optimizer's masters and moments
SPARE = 1.5e9  # the program itself and the key-value cache of a small model
LOW = 4e9


def probe() -> list[Finding]:
    """A finding on memory."""
    memory = psutil.virtual_memory()
    return [memory_finding(memory.total, memory.available, memory_limit())]


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
