"""Probes of Python, slimrl, its required packages and their versions, and its extras."""

import platform
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import slimrl
from slimrl.errors import install_hint
from slimrl.monitor.findings import Finding, Level

CORE = ""  # the name of requirements outside of extras
STATES = ("installed", "need nothing more", "not installed", "in other versions")  # of extras
SHOWN = ("torch", "transformers")
Installed = Callable[[str], str]


def software() -> Iterator[Finding]:
    """Examine Python, the packages, and the extras."""
    asked = by_extra(_requirements("slimrl"))
    extras = {extra: [*with_extras(asked[extra], _requirements)] for extra in sorted(asked) if extra != CORE}
    here = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, {sys.prefix}"
    yield Finding("slimrl", Level.OK, f"{version_of('slimrl')} in {Path(slimrl.__file__).parent}")
    yield Finding("Python", Level.OK, here)
    yield core_finding(asked.get(CORE, []), version_of)
    yield extras_finding(extras, version_of, all_needed("slimrl", _requirements))


def version_of(name: str) -> str:
    """Return the version of an installed package; empty if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def by_extra(texts: Iterable[str]) -> dict[str, list[Requirement]]:
    """Group requirements by their extra, without requirements for other platforms."""
    found: dict[str, list[Requirement]] = {}
    for one in map(Requirement, texts):
        extra = str(one.marker).partition("extra ==")[2].strip().strip("\"'") if one.marker else CORE
        if one.marker is None or one.marker.evaluate({"extra": extra}):
            found.setdefault(extra, []).append(one)
    return found


def all_needed(name: str, requirements: Callable[[str], Iterable[str]]) -> set[str]:
    """Return all packages that a package requires, directly or through others, without extras."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for one in by_extra(requirements(waiting.pop())).get(CORE, []):
            if (needed := canonicalize_name(one.name)) not in found:
                found.add(needed)
                waiting.append(needed)
    return found


def with_extras(asked: Iterable[Requirement], requirements: Callable[[str], Iterable[str]]) -> Iterator[Requirement]:
    """Yield the requirements, each followed by those of its extras, as in `slimrl-serve[server]`."""
    for one in asked:
        yield one
        inner = by_extra(requirements(one.name)) if one.extras else {}
        for extra in sorted(one.extras):
            yield from with_extras(inner.get(extra, []), requirements)


def _requirements(name: str) -> Iterable[str]:
    """Return the requirements of a package; none if it is not installed."""
    return (requires(name) or ()) if version_of(name) else ()


def faults_of(asked: Iterable[Requirement], installed: Installed) -> list[str]:
    """Describe the requirements that are not met.

    >>> faults_of([Requirement("torch>=2.13"), Requirement("rich")], lambda name: {"torch": "2.9"}.get(name, ""))
    ['torch is 2.9, and >=2.13 is wanted', 'rich is missing']
    """
    faults = []
    for one in asked:
        found = installed(one.name)
        if not found:
            faults.append(f"{one.name} is missing")
        elif not one.specifier.contains(found, prereleases=True):
            faults.append(f"{one.name} is {found}, and {one.specifier} is wanted")
    return faults


def core_finding(asked: list[Requirement], installed: Installed) -> Finding:
    """Return a finding on whether the core's packages are installed in the required versions."""
    if faults := faults_of(asked, installed):
        remedy = "`pip install --upgrade slimrl`, or in a checkout `uv sync --inexact`"
        return Finding("packages", Level.PROBLEM, "; ".join(faults), remedy)
    shown = ", ".join(f"{name} {installed(name)}" for name in SHOWN if installed(name))
    return Finding("packages", Level.OK, f"{shown} and {len(asked) - len(SHOWN)} others, as slimrl wants them")


def extras_finding(
    extras: Mapping[str, list[Requirement]], installed: Installed, come_with_core: Collection[str]
) -> Finding:
    """Return a finding on the extras: installed, in other versions, not installed, or without any packages beyond the
    core's."""
    found: dict[str, list[str]] = {
        "installed": [],
        "need nothing more": [],
        "not installed": [],
        "in other versions": [],
    }
    for extra, asked in extras.items():
        faults = faults_of(asked, installed)
        if not faults:
            is_core = all(canonicalize_name(one.name) in come_with_core for one in asked)
            found["need nothing more" if is_core else "installed"].append(extra)
        elif all(fault.endswith("is missing") for fault in faults):
            found["not installed"].append(extra)
        else:
            found["in other versions"].append(f"{extra} ({'; '.join(faults)})")
    text = "; ".join(f"{word}: {', '.join(names)}" for word, names in found.items() if names)
    broken = found["in other versions"]
    lacking = [name.partition(" ")[0] for name in (*broken, *found["not installed"])]
    remedy = f"What you need of them: {install_hint(lacking[0])}" if lacking else ""
    return Finding("extras", Level.NOTE if broken else Level.OK, text, remedy)
