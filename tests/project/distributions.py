"""Where the sources and the pages of each distribution are: of the core, and of the plug-ins in `packages/`."""

import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CORE = "slimrl"
# The directory of each distribution's pyproject.toml, by the name of its package.
HOMES = {CORE: ROOT, **{f"slimrl_{path.parent.name}": path.parent for path in ROOT.glob("packages/*/pyproject.toml")}}
PLUGINS = sorted(HOMES.keys() - {CORE})


def package_of(module: str) -> str:
    """The package at the top of a module's name."""
    return module.partition(".")[0]


def files_of(package: str) -> list[Path]:
    """The Python files of a distribution."""
    return sorted((HOMES[package] / "src" / package).rglob("*.py"))


def all_files() -> list[Path]:
    """The Python files of all distributions."""
    return [path for package in HOMES for path in files_of(package)]


def modules_of(package: str) -> dict[str, str]:
    """The source of every module of a distribution, by its name."""
    sources = {}
    for path in files_of(package):
        parts = path.relative_to(HOMES[package] / "src").with_suffix("").parts
        sources[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text(encoding="utf-8")
    return sources


def project_of(package: str) -> dict[str, Any]:
    """The table `[project]` of a distribution's pyproject.toml."""
    project: dict[str, Any] = tomllib.loads((HOMES[package] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project


def requirements_of(package: str) -> list[str]:
    """The requirements of a distribution, those of its extras included."""
    project = project_of(package)
    extras = project.get("optional-dependencies", {}).values()
    return [*project["dependencies"], *(one for extra in extras for one in extra)]
