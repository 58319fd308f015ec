"""The documentation builds as a site without a warning, and its search, settings and links are right."""

import importlib.util
import json
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
def test_every_setting_of_rl_has_a_row(site: Path) -> None:
    page = (site / "settings" / "rl" / "index.html").read_text(encoding="utf-8")
    for setting in ("max_steps", "trainer.optim.lr", "orchestrator.env.0.id", "model.name"):
        assert f"<code>{setting}</code>" in page


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
