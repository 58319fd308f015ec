"""The documentation names files, packages and floors; they must be the real ones."""

import re
from pathlib import Path

import pytest

from tests.project.test_floors import FLOORS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/slimrl"
STRUCTURE = ROOT / "docs/structure.md"
DOCUMENTS = ("docs/structure.md", "CONTRIBUTING.md", "benchmarks/README.md")
# `word/` may also be a group of metrics.
METRIC_GROUPS = {"time/", "perf/", "memory/"}


def named_paths(text: str) -> list[str]:
    """What is written `like/this.py` or `like/this/`, in backticks."""
    words = re.findall(r"`([\w./-]+)`", text)
    return [word for word in words if re.search(r"(/|\.py|\.md|\.toml)$", word) and word not in METRIC_GROUPS]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_path_that_is_named_exists(document: str) -> None:
    paths = named_paths((ROOT / document).read_text(encoding="utf-8"))
    assert paths
    assert [path for path in paths if not (ROOT / path).exists() and not (PACKAGE / path).exists()] == []


def test_every_package_is_described() -> None:
    text = STRUCTURE.read_text(encoding="utf-8")
    packages = [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
    assert [name for name in packages if f"- `{name}/`: " not in text] == []


def test_the_table_of_floors_is_the_one_that_is_enforced() -> None:
    rows = re.findall(r"^\| (\d+) \| (.+?) \|", STRUCTURE.read_text(encoding="utf-8"), re.MULTILINE)
    table = {name: int(floor) for floor, names in rows for name in re.findall(r"`([\w./]+)`", names)}
    modules = {name: name.removesuffix("/").removesuffix(".py").replace("/", ".") for name in table}
    enforced = {unit: floor for unit, floor in FLOORS.items() if unit != "slimrl"}
    assert {f"slimrl.{modules[name]}": floor for name, floor in table.items()} == enforced
