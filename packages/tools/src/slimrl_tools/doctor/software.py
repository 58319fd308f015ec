"""Probes of Python, slimrl, its required packages and their versions, and its extras."""

import platform
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path

from packaging.requirements import Requirement

import slimrl
from slimrl.errors import install_hint
from slimrl.monitor.findings import Finding, Level

SHOWN = ("torch", "transformers")


def software() -> Iterator[Finding]:
    """Examine Python, the packages, and the extras."""
    here = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, {sys.prefix}"
    yield Finding("slimrl", Level.OK, f"{version_of('slimrl')} in {Path(slimrl.__file__).parent}")
    yield Finding("Python", Level.OK, here)
    yield core_finding()
    yield extras_finding(sorted(metadata("slimrl").get_all("Provides-Extra") or ()))


def version_of(name: str) -> str:
    """Return the version of an installed package; empty if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def requirements_of(name: str, extra: str = "") -> Iterator[Requirement]:
    """Yield what an installed package needs on this platform, or what an extra of it needs besides; of each package
    named with extras, as in `slimrl-serve[server]`, also their requirements. Nothing if it is not installed."""
    for one in map(Requirement, (version_of(name) and requires(name)) or ()):
        if _applies(one, extra) and not (extra and _applies(one, "")):
            yield one
            for inner in sorted(one.extras):
                yield from requirements_of(one.name, inner)


def _applies(one: Requirement, extra: str) -> bool:
    return one.marker is None or one.marker.evaluate({"extra": extra})


def faults_of(extra: str = "") -> list[str]:
    """Describe the requirements of slimrl, or of one of its extras, that are not met: `torch is 2.9, and >=2.13 is
    wanted`, `rich is missing`."""
    faults = []
    for one in requirements_of("slimrl", extra):
        if not (found := version_of(one.name)):
            faults.append(f"{one.name} is missing")
        elif not one.specifier.contains(found, prereleases=True):
            faults.append(f"{one.name} is {found}, and {one.specifier} is wanted")
    return faults


def core_finding() -> Finding:
    """Return a finding on whether the core's packages are installed in the required versions."""
    if faults := faults_of():
        remedy = "`pip install --upgrade slimrl`, or in a checkout `uv sync --inexact`"
        return Finding("packages", Level.PROBLEM, "; ".join(faults), remedy)
    shown = ", ".join(f"{name} {version_of(name)}" for name in SHOWN)
    num_others = len([*requirements_of("slimrl")]) - len(SHOWN)
    return Finding("packages", Level.OK, f"{shown} and {num_others} others, as slimrl wants them")


def extras_finding(extras: Sequence[str]) -> Finding:
    """Return a finding on the extras: installed, not installed, or in other versions."""
    found: dict[str, list[str]] = {"installed": [], "not installed": [], "in other versions": []}
    for extra in extras:
        faults = faults_of(extra)
        if not faults:
            found["installed"].append(extra)
        elif all(fault.endswith("is missing") for fault in faults):
            found["not installed"].append(extra)
        else:
            found["in other versions"].append(f"{extra} ({'; '.join(faults)})")
    text = "; ".join(f"{word}: {', '.join(names)}" for word, names in found.items() if names)
    broken = found["in other versions"]
    lacking = [name.partition(" ")[0] for name in (*broken, *found["not installed"])]
    remedy = f"What you need of them: {install_hint(lacking[0])}" if lacking else ""
    return Finding("extras", Level.NOTE if broken else Level.OK, text, remedy)
