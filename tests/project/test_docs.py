"""The documentation names files, packages, floors, settings and metrics; they must be the real ones."""

import re
from pathlib import Path

import pytest

from slimrl.config.check import CheckConfig
from slimrl.config.play import PlayConfig
from slimrl.config.prime_rl.rl_keys import RL_KEYS
from slimrl.config.prime_rl.rules import is_listed
from slimrl.config.reading.schema import leaves, spec_of, spell
from slimrl.config.run import EvalRunConfig, ProbeConfig, RLConfig, SFTConfig, TrainerOnlyConfig
from slimrl.config.serve import ServeConfig
from slimrl.monitor.metrics import METRICS
from tests.project.test_floors import FLOORS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/slimrl"
STRUCTURE = ROOT / "docs/structure.md"
DOCUMENTS = ("docs/structure.md", "CONTRIBUTING.md", "benchmarks/README.md")
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/*/*.md", "experiments/*/*.md", "benchmarks/*.md")
    for path in ROOT.glob(pattern)
)
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


# What was measured is told with the names of its day; `args` are an environment's own.
PRESENT = [path for path in PAGES if not {"log", "benchmarks"} & set(path.parts[len(ROOT.parts) :])]
COMMANDS = (RLConfig, SFTConfig, EvalRunConfig, TrainerOnlyConfig, ProbeConfig, PlayConfig, CheckConfig, ServeConfig)
SETTINGS = {
    spell(path[:depth]) for c in COMMANDS for path, _ in leaves(spec_of(c)) for depth in range(1, len(path) + 1)
}
SECTIONS = {name.partition(".")[0] for name in SETTINGS} - {"args"}


@pytest.mark.parametrize("document", PRESENT, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_setting_that_is_named_exists(document: Path) -> None:
    named = set(re.findall(r"(?:--|`)([a-z_]+(?:\.[a-z_0-9]+)+)", document.read_text(encoding="utf-8")))
    settings = [
        name for name in named if name.partition(".")[0] in SECTIONS and not re.search(r"\.(py|toml|md|jsonl?)$", name)
    ]
    unknown = [name for name in settings if name not in SETTINGS and ".args" not in name]
    # A page may name what is read from another trainer's files.
    assert [name for name in unknown if not _is_read(name)] == []


def _is_read(name: str) -> bool:
    """Whether a name is one of prime-rl's that slimrl reads, or a section of such names."""
    return is_listed(RL_KEYS, tuple(name.split("."))) or any(key.startswith(f"{name}.") for key in RL_KEYS)


@pytest.mark.parametrize("document", PRESENT, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_metric_that_is_named_exists(document: Path) -> None:
    known = {metric.name for metric in METRICS}
    open_groups = {name.partition("/")[0] for name in known if "<" in name}
    closed = {name.partition("/")[0] for name in known} - open_groups
    named = re.findall(r"`([a-z_]+/[a-z_]+)`", document.read_text(encoding="utf-8"))
    assert [name for name in named if name.partition("/")[0] in closed and name not in known] == []
