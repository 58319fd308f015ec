"""The core's dependencies are ranges, and every package that a distribution imports is listed."""

import ast
import re
import sys

import pytest

from tests.project.distributions import CORE, HOMES, files_of, project_of, requirements_of

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
# Programs, packages whose version another one leaves open, and the package that reads `.env` for scripts/.
STARTED = {"pip", "jinja2", "python_dotenv"}


def name_of(requirement: str) -> str:
    """The package that a requirement is of, as its modules are called."""
    found = re.match(r"[\w.-]+", requirement)
    assert found
    return found.group().lower().replace("-", "_")


@pytest.mark.parametrize("requirement", project_of(CORE)["dependencies"])
def test_a_dependency_of_the_core_is_a_range(requirement: str) -> None:
    versions, _, _ = requirement.partition(";")
    assert ">=" in versions
    assert not re.search(r"={2,3}|~=", versions)


def listed_by(package: str) -> set[str]:
    """The packages that a distribution may import: its dependencies and extras, and those of what it needs itself."""
    listed = {name_of(requirement) for requirement in requirements_of(package)}
    if package == CORE:  # its extras name the plug-ins, of which it imports nothing
        return listed
    return listed.union(*(listed_by(other) for other in listed & HOMES.keys()))


def imported_by(package: str, anywhere: bool) -> set[str]:
    """The packages of others that a distribution imports: at the top of its modules, or anywhere in them."""
    imported: set[str] = set()
    for path in files_of(package):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree) if anywhere else tree.body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            imported |= {name.partition(".")[0] for name in names}
    others = imported - sys.stdlib_module_names - {package} - ELSEWHERE
    return {DISTRIBUTIONS.get(name, name) for name in others}


@pytest.mark.slow
@pytest.mark.parametrize("package", HOMES)
def test_packages_that_are_imported_are_dependencies_or_extras(package: str) -> None:
    assert imported_by(package, anywhere=False) <= listed_by(package)


@pytest.mark.slow
@pytest.mark.parametrize("package", HOMES)
def test_dependencies_are_imported(package: str) -> None:
    listed = {name_of(requirement) for requirement in project_of(package)["dependencies"]}
    assert listed - imported_by(package, anywhere=True) <= STARTED
