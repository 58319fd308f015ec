"""The documentation builds as a site without a warning, and no page of it asks another host for anything."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MISSING = [name for name in ("mkdocs", "material", "mkdocstrings_handlers") if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} not installed: uv sync --group docs")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the site, built strictly."""
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(directory)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return directory


@pytest.mark.slow
def test_a_search_finds_guides_before_logs(site: Path) -> None:
    found = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    boosts = {page["location"]: page.get("boost", 1.0) for page in found}
    assert {boost for place, boost in boosts.items() if place.startswith(("log/", "changelog/"))} == {0.2}
    assert boosts["environments/"] == boosts["environment_details/"] == 1.0


@pytest.mark.slow
def test_no_page_asks_another_host_for_anything(site: Path) -> None:
    """A link that is followed by a click is no request."""
    loads = re.compile(
        r"""<(?:script|img|iframe|source|link(?! rel="canonical"))[^>]*(?:src|href)="((?:https?:)?//[^"]+)"""
    )
    styles = re.compile(r"""(?:url\(|@import\s+)["']?((?:https?:)?//[^"')\s]+)""")
    pages = [path.read_text(encoding="utf-8") for kind in ("html", "css", "svg") for path in site.rglob(f"*.{kind}")]
    assert len(pages) > 50
    assert [found for page in pages for found in loads.findall(page) + styles.findall(page)] == []


@pytest.mark.slow
def test_every_setting_of_rl_has_a_row(site: Path) -> None:
    page = (site / "settings" / "rl" / "index.html").read_text(encoding="utf-8")
    for setting in ("max_steps", "trainer.optim.lr", "orchestrator.env.0.id", "model.name"):
        assert f"<code>{setting}</code>" in page
