"""The documentation names files, packages, floors, settings and metrics; they must be the real ones."""

import re
from pathlib import Path

import pytest

from slimrl.monitor.metrics import METRICS
from tests.project.distributions import HOMES, PLUGINS, ROOT
from tests.project.pages import PAGES, PRESENT, unknown_settings
from tests.project.test_floors import FLOORS

pytestmark = pytest.mark.slow

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


@pytest.mark.parametrize("package", PLUGINS)
def test_every_path_that_a_plug_in_names_exists(package: str) -> None:
    home = HOMES[package]
    paths = named_paths((home / "README.md").read_text(encoding="utf-8"))
    places = (ROOT, home, home / "src", home / "src" / package, home / "tests")
    assert [path for path in paths if not any((place / path).exists() for place in places)] == []


def test_every_package_is_described() -> None:
    text = STRUCTURE.read_text(encoding="utf-8")
    packages = [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
    assert [name for name in packages if f"- `{name}/`: " not in text] == []
    plugins = [HOMES[package].relative_to(ROOT) for package in PLUGINS]
    assert [home for home in plugins if f"| [`{home}/`](../{home}/README.md) | " not in text] == []


def test_the_table_of_floors_is_the_one_that_is_enforced() -> None:
    rows = re.findall(r"^\| (\d+) \| (.+?) \|", STRUCTURE.read_text(encoding="utf-8"), re.MULTILINE)
    table = {name: int(floor) for floor, names in rows for name in re.findall(r"`([\w./]+)`", names)}
    modules = {name: name.removesuffix("/").removesuffix(".py").replace("/", ".") for name in table}
    enforced = {unit: floor for unit, floor in FLOORS.items() if unit != "slimrl"}
    assert {f"slimrl.{modules[name]}": floor for name, floor in table.items()} == enforced


def linked_files(document: Path) -> list[Path]:
    """Return the files that a page's relative links lead to; code is left out."""
    text = re.sub(r"^\s*```.*?^\s*```$", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)", text)
    return [document.parent / target for target in targets if ":" not in target]


# The pages of settings exist on the site alone.
SITE_ONLY = re.compile(r"docs/settings/\w+\.md")


@pytest.mark.parametrize("document", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_to_a_file(document: Path) -> None:
    lost = [path for path in linked_files(document) if not path.exists()]
    names = [path.relative_to(ROOT).as_posix() for path in lost]
    assert [name for name in names if not SITE_ONLY.fullmatch(name)] == []


# It names what is read from another trainer's files: a test of slimrl-tools has it.
PRIME_RL = ROOT / "docs" / "prime_rl.md"


@pytest.mark.parametrize(
    "document", [path for path in PRESENT if path != PRIME_RL], ids=lambda path: str(path.relative_to(ROOT))
)
def test_every_setting_that_is_named_exists(document: Path) -> None:
    assert unknown_settings(document) == []


@pytest.mark.parametrize("document", PRESENT, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_metric_that_is_named_exists(document: Path) -> None:
    known = {metric.name for metric in METRICS}
    open_groups = {name.partition("/")[0] for name in known if "<" in name}
    closed = {name.partition("/")[0] for name in known} - open_groups
    named = re.findall(r"`([a-z_]+/[a-z_]+)`", document.read_text(encoding="utf-8"))
    assert [name for name in named if name.partition("/")[0] in closed and name not in known] == []
