"""The pages of the documentation, and the settings that they name."""

import re
from pathlib import Path

from slimrl.config.reading.schema import leaves, spec_of, spell
from slimrl.config.run import COMMANDS
from tests.project.distributions import ROOT

PAGES = sorted(
    path
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "examples/*/*.md",
        "experiments/*/*.md",
        "benchmarks/*.md",
        "packages/*/*.md",
    )
    for path in ROOT.glob(pattern)
)
# What was measured is told with the names of its day.
PRESENT = [path for path in PAGES if not {"log", "benchmarks"} & set(path.parts[len(ROOT.parts) :])]

SETTINGS = {
    spell(path[:depth])
    for c in COMMANDS.values()
    for path, _ in leaves(spec_of(c))
    for depth in range(1, len(path) + 1)
}
SECTIONS = {name.partition(".")[0] for name in SETTINGS} - {"args"}  # `args` are an environment's own
FILE = re.compile(r"\.(py|toml|md|jsonl?|log)$")


def unknown_settings(page: Path) -> list[str]:
    """The names on a page that are spelt as settings and are none."""
    named = set(re.findall(r"(?:--|`)([a-z_]+(?:\.[a-z_0-9]+)+)", page.read_text(encoding="utf-8")))
    settings = [name for name in named if name.partition(".")[0] in SECTIONS and not FILE.search(name)]
    return [name for name in settings if name not in SETTINGS and not re.search(r"[._]args", name)]
