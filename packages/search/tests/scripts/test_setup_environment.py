"""The script as a person runs it: builds, does nothing twice, goes on when killed, and says what is wrong."""

import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from packages.search.tests.retrieval.test_index import Letters
from packages.search.tests.scripts.test_wiki_scripts import status_of

pytest.importorskip("chromadb", reason="the extra [search] is not installed")
ROOT = Path(__file__).parents[4]


def run(directory: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "setup_environment.py"), "--data-dir", str(directory), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=300)


@pytest.mark.nightly
def test_it_builds_once_and_another_in_its_place(tmp_path):
    first = run(tmp_path, "--num-pages", "30")
    assert first.returncode == 0, first.stderr
    assert "30 pages in" in first.stdout and "index of their titles in" in first.stdout
    before = (tmp_path / "corpus.sqlite").stat().st_mtime_ns
    assert run(tmp_path, "--num-pages", "30", DEV="1").returncode == 0
    assert (tmp_path / "corpus.sqlite").stat().st_mtime_ns == before
    other = run(tmp_path, DEV="1")
    assert other.returncode == 0, other.stderr
    assert "made from generated, 30 pages, seed 0" in other.stdout and "10 pages in" in other.stdout


@pytest.mark.nightly
def test_killed_while_it_embeds_it_goes_on(tmp_path):
    command = [sys.executable, str(ROOT / "scripts" / "setup_environment.py"), "--data-dir", str(tmp_path)]
    with subprocess.Popen([*command, "--num-pages", "2000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        vectors = tmp_path / ".chroma_db" / "vectors" / "000000.npy"  # of 1,000 titles; the others are embedded
        deadline = time.monotonic() + 120
        while not vectors.exists() and time.monotonic() < deadline:
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    result = run(tmp_path, "--num-pages", "2000")
    assert result.returncode == 0, result.stderr
    assert "embedding titles: " in result.stdout and "index of their titles in" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--corpus", "missing.jsonl"), "missing.jsonl cannot be read: No such file or directory. Check `corpus`"),
        (("--corpus", "nonsense"), "`nonsense` is neither a `.jsonl`"),
        (("--num-pages", "3"), "has 10 pages or more, not 3"),
        (("--corpus", str(ROOT / "docker")), "there is no file of pages in"),
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
def test_pages_and_index_of_another_corpus_are_replaced(tmp_path: Path, set_up):
    assert "building it anew" not in set_up(tmp_path, "--num-pages", "10")
    said = set_up(tmp_path, "--num-pages", "20")
    assert "was made from generated, 10 pages, seed 0" in said and "another corpus than the present one" in said
    assert "20 pages in" in said and "building it anew" not in set_up(tmp_path, "--num-pages", "20")
    pages = tmp_path / "pages.jsonl"
    pages.write_text('{"id": "a", "title": "A", "content": "text"}\n')
    assert "1 pages in" in set_up(tmp_path, "--corpus", str(pages))
    assert "another embedder" in set_up(tmp_path, "--corpus", str(pages), "--embedder", "another")


@pytest.mark.slow
def test_an_index_that_was_deleted_or_damaged_is_built_again(tmp_path: Path, set_up):
    set_up(tmp_path, "--num-pages", "10")
    shutil.rmtree(tmp_path / ".chroma_db")
    assert "index of their titles in" in set_up(tmp_path, "--num-pages", "10")
    (built,) = (tmp_path / ".chroma_db").glob("titles-*")
    (built / "chroma.sqlite3").write_bytes(b"")
    assert "building it anew" in set_up(tmp_path, "--num-pages", "10")
    (tmp_path / ".chroma_db" / "about.json").write_text("{")
    assert "is damaged" in set_up(tmp_path, "--num-pages", "10")
    (tmp_path / "corpus.sqlite").write_bytes(b"no database at all")
    assert "corpus.sqlite is no corpus of slimrl's" in set_up(tmp_path, "--num-pages", "10")
    assert "building it anew" not in set_up(tmp_path, "--num-pages", "10")
