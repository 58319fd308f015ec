"""The core's dependencies are ranges, and every package that the core imports is listed."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Modules that are named otherwise than their distribution, or belong to one that must have exactly their version.
DISTRIBUTIONS = {
    "yaml": "pyyaml",
    "dotenv": "python_dotenv",
    "pydantic_core": "pydantic",
    "starlette": "fastapi",
    "h11": "uvicorn",
}
# Programs and plug-ins for environments of their own import these.
ELSEWHERE = {"vllm", "xllamacpp"}


def name_of(requirement: str) -> str:
    """The package that a requirement is of, as its modules are called."""
    found = re.match(r"[\w.-]+", requirement)
    assert found
    return found.group().lower().replace("-", "_")


@pytest.mark.parametrize("requirement", PROJECT["dependencies"])
def test_a_dependency_of_the_core_is_a_range(requirement: str) -> None:
    versions, _, _ = requirement.partition(";")
    assert ">=" in versions
    assert not re.search(r"={2,3}|~=", versions)


@pytest.mark.slow
def test_packages_that_are_imported_are_dependencies_or_extras() -> None:
    extras = [requirement for extra in PROJECT["optional-dependencies"].values() for requirement in extra]
    listed = {name_of(requirement) for requirement in [*PROJECT["dependencies"], *extras]}
    imported = set()
    for path in (ROOT / "src").rglob("*.py"):
        # Imports at the top alone, which run with the module.
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            imported |= {name.partition(".")[0] for name in names}
    others = imported - sys.stdlib_module_names - {"slimrl"} - ELSEWHERE
    assert {DISTRIBUTIONS.get(name, name) for name in others} <= listed


@pytest.mark.nightly
def test_reading_gguf_is_loaded_where_a_file_is_read_alone() -> None:
    program = "import sys, slimrl.models.load, slimrl.models.skeleton; print('gguf' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False"]
