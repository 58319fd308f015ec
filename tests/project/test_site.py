"""The documentation builds as a site without a warning, and no page of it asks another host for anything."""

import importlib.util
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MISSING = [name for name in ("mkdocs", "material", "mkdocstrings_handlers") if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} not installed: uv sync --group docs")

# A link that is followed by a click is no request; these are fetched as soon as the page is shown.
FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "object": "data"}
OUTSIDE = re.compile(r"(https?:)?//")


class Requests(HTMLParser):
    """Collects the addresses that a browser fetches to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        address = values.get(FETCHED.get(tag, "")) or (values.get("href") if tag == "link" else None)
        if address and values.get("rel") != "canonical":
            self.found.append(address)


def requests_of(html: str) -> list[str]:
    """Return the addresses on other hosts that a page fetches, in its tags and in its styles."""
    parser = Requests()
    parser.feed(html)
    return [address for address in [*parser.found, *requests_of_styles(html)] if OUTSIDE.match(address)]


def requests_of_styles(text: str) -> list[str]:
    """Return the addresses that styles fetch."""
    return re.findall(r"""(?:url\(|@import\s+)["']?((?:https?:)?//[^"')\s]+)""", text)


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
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 50
    outside = {str(page.relative_to(site)): requests_of(page.read_text(encoding="utf-8")) for page in pages}
    assert {page: found for page, found in outside.items() if found} == {}
    styles = [*site.rglob("*.css"), *site.rglob("*.svg")]
    assert [path for path in styles if requests_of_styles(path.read_text(encoding="utf-8"))] == []


@pytest.mark.slow
def test_every_setting_of_rl_has_a_row(site: Path) -> None:
    page = (site / "settings" / "rl" / "index.html").read_text(encoding="utf-8")
    for setting in ("max_steps", "trainer.optim.lr", "orchestrator.env.0.id", "model.name"):
        assert f"<code>{setting}</code>" in page


def test_a_request_to_another_host_is_found() -> None:
    assert requests_of('<img src="https://a.b/c.png"><a href="https://a.b">x</a>') == ["https://a.b/c.png"]
    assert requests_of('<link rel="preconnect" href="//fonts.b">') == ["//fonts.b"]
    assert requests_of("<style>@import url('https://a.b/c.css')</style>") == ["https://a.b/c.css"]
    assert requests_of('<script src="assets/x.js"></script><img src="../y.svg">') == []


def test_links_between_files_become_links_between_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    rewrite = importlib.import_module("hooks").rewrite_links
    pages = {"lora.md", "benchmarks.md", "examples/wordle.md", "algorithms/README.md"}
    cases = {
        "see [LoRA](../../docs/lora.md#memory)": "see [LoRA](../lora.md#memory)",
        "[all](../../benchmarks/README.md)": "[all](../benchmarks.md)",
        "[file](eval.toml)": "file",
        "[site](https://a.b)": "[site](https://a.b)",
        "[which](../../docs/algorithms/README.md)": "[which](../algorithms/README.md)",
        "[over two\nlines](../../docs/lora.md)": "[over two\nlines](../lora.md)",
    }
    for text, expected in cases.items():
        assert rewrite(text, "examples/wordle/README.md", "examples/wordle.md", pages) == expected
    code = "```\n[a](b.md)\n```\n"
    assert rewrite(code, "docs/lora.md", "lora.md", pages) == code
