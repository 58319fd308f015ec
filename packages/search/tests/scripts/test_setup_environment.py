"""The script as a person runs it: builds, does nothing twice, and says what is wrong."""

import runpy
import shutil
import sys
from pathlib import Path

import pytest

from packages.search.tests.retrieval.test_index import Letters
from packages.search.tests.scripts.test_wiki_scripts import status_of

pytest.importorskip("chromadb", reason="the extra [search] is not installed")
ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--corpus", "missing.jsonl"), "missing.jsonl cannot be read: No such file or directory. Check `corpus`"),
        (("--num-pages", "3"), "has 10 pages or more, not 3"),
    ],
)
def test_what_is_wrong_is_said_without_a_traceback(
    tmp_path, arguments: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, capsys
):
    assert status_of("setup_environment", ("--data-dir", str(tmp_path / "data"), *arguments), monkeypatch) == 2
    assert list(tmp_path.iterdir()) == []
    shown = capsys.readouterr().err
    assert said in shown and "Traceback" not in shown


@pytest.fixture
def set_up(monkeypatch: pytest.MonkeyPatch, capsys):
    """Runs it in this process with an embedder of letters; returns what it printed."""
    monkeypatch.setattr("slimrl_search.retrieval.embedding.SentenceEmbedder", Letters)

    def run_here(directory: Path, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["setup_environment.py", "--data-dir", str(directory), *arguments])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(ROOT / "scripts" / "setup_environment.py"), run_name="__main__")
        assert ended.value.code == 0
        return capsys.readouterr().out.replace("\n", " ")

    return run_here


@pytest.mark.slow
def test_what_is_stale_missing_or_damaged_is_built_again_and_nothing_else(tmp_path: Path, set_up, monkeypatch):
    anew, done = "building it anew", "index of their titles in"
    assert anew not in set_up(tmp_path, "--num-pages", "10")
    said = set_up(tmp_path, "--num-pages", "20")
    assert "was made from generated, 10 pages, seed 0" in said and "was made from another corpus, embedder or" in said
    before = (tmp_path / "corpus.sqlite").stat().st_mtime_ns
    monkeypatch.setenv("DEV", "1")  # a flag counts more
    said = set_up(tmp_path, "--num-pages", "20")
    assert "20 pages in" in said and done in said and anew not in said
    assert (tmp_path / "corpus.sqlite").stat().st_mtime_ns == before
    assert "10 pages in" in set_up(tmp_path)
    pages = tmp_path / "pages.jsonl"
    pages.write_text('{"id": "a", "title": "A", "content": "text"}\n')
    assert "1 pages in" in set_up(tmp_path, "--corpus", str(pages))
    set_up(tmp_path)
    shutil.rmtree(tmp_path / ".chroma_db")
    said = set_up(tmp_path)
    assert done in said and anew not in said
    (built,) = (tmp_path / ".chroma_db").glob("index-*")
    for damaged, content, found in (
        (built / "chroma.sqlite3", b"", anew),
        (tmp_path / "corpus.sqlite", b"no database at all", "corpus.sqlite is no corpus of slimrl's"),
    ):
        damaged.write_bytes(content)
        assert found in set_up(tmp_path)
    assert anew not in set_up(tmp_path)
