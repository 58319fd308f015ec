"""The site's pages of settings have every setting of every command. MkDocs is not needed to render them."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from slimrl.config.reading.schema import leaves, spec_of, spell
from slimrl.config.run import COMMANDS

ROOT = Path(__file__).parents[2]


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that renders them, imported as MkDocs does."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    return importlib.import_module("settings_pages")


def test_every_setting_has_a_row_on_the_page_of_its_command(pages: ModuleType) -> None:
    rendered = pages.settings_pages()
    for command in COMMANDS.values():
        names = {spell(path) for path, _ in leaves(spec_of(command))}
        assert len(names) > 3
        assert [name for name in names if f"| `{name}` |" not in rendered[command.command]] == []


def test_the_site_lists_a_page_for_every_command(pages: ModuleType) -> None:
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for command in COMMANDS.values():
        assert f"settings/{command.command}.md" in site
        assert f"]({command.command}.md) |" in pages.settings_pages()["index"]
