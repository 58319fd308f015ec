"""The index: real Chroma, and an embedder that is quick and knows no more than letters."""

import hashlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slimrl.errors import UserError
from slimrl.retrieval.corpus import Corpus, build_corpus
from slimrl.retrieval.index import ABOUT, TitleIndex, build_index
from slimrl.retrieval.pages import Page

pytest.importorskip("chromadb", reason="the extra [search] is not installed")
TITLES = [
    "Ampere",
    "An American in Paris",
    "Anarchism",
    "Apollo 11",
    "Alabama",
    "Achilles",
    "\u05e9\u05dc\u05d5\u05dd \U0001f98a",
]


class Letters:
    """Counts pairs of letters, in 256 places."""

    def __init__(self, fingerprint: str = "letters", delay_s: float = 0.0) -> None:
        self.fingerprint = fingerprint
        self.embedded = 0
        self._delay_s = delay_s

    def embed(self, texts: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
        time.sleep(self._delay_s)
        self.embedded += len(texts)
        vectors = np.full((len(texts), 256), 1e-3, dtype=np.float32)
        for row, text in enumerate(texts):
            for pair in zip(text.lower(), text.lower()[1:], strict=False):
                vectors[row, hashlib.sha256("".join(pair).encode()).digest()[0]] += 1
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def ignore(count: int) -> None:
    pass


def corpus_of(directory: Path, titles: Sequence[str] = TITLES) -> Corpus:
    pages = (Page(title.lower().replace(" ", "_"), title, "") for title in titles)
    return build_corpus(directory / "corpus.sqlite", pages, "a test", ignore)


def numbered(directory: Path, num: int) -> Corpus:
    return corpus_of(directory, [f"Page {number}" for number in range(num)])


def test_the_nearest_titles_come_first(tmp_path):
    corpus = corpus_of(tmp_path)
    assert build_index(tmp_path / "chroma", corpus, Letters(), ignore) == len(TITLES)
    index = TitleIndex(tmp_path / "chroma", corpus, Letters())
    assert index.search("apollo eleven", 3)[0] == ("apollo_11", "Apollo 11")
    assert index.search("\u05e9\u05dc\u05d5\u05dd", 1) == (("\u05e9\u05dc\u05d5\u05dd_\U0001f98a", TITLES[-1]),)
    assert len(index.search("x", 100)) == len(TITLES)


def test_a_repeated_query_is_not_embedded_again(tmp_path):
    corpus, embedder = corpus_of(tmp_path), Letters()
    build_index(tmp_path / "chroma", corpus, embedder, ignore)
    index = TitleIndex(tmp_path / "chroma", corpus, embedder)
    before = embedder.embedded
    assert index.search("paris", 2) == index.search("paris", 2)
    assert embedder.embedded == before + 1


def test_building_again_does_nothing(tmp_path):
    corpus, embedder = numbered(tmp_path, 2500), Letters()
    counts: list[int] = []
    assert build_index(tmp_path / "chroma", corpus, embedder, counts.append) == 2500
    assert sum(counts) == 2500 and embedder.embedded == 2500
    assert build_index(tmp_path / "chroma", corpus, embedder, ignore) == 0 and embedder.embedded == 2500


def test_an_interrupted_build_goes_on_where_it_was(tmp_path):
    corpus, embedder = numbered(tmp_path, 3500), Letters()
    counts: list[int] = []

    def interrupt(count: int) -> None:
        counts.append(count)
        if len(counts) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_index(tmp_path / "chroma", corpus, embedder, interrupt)
    with pytest.raises(UserError, match=r"has 2000 of 3500 pages: it was interrupted\. Go on with"):
        TitleIndex(tmp_path / "chroma", corpus, embedder)
    assert build_index(tmp_path / "chroma", corpus, embedder, ignore) == 1500 and embedder.embedded == 3500
    assert TitleIndex(tmp_path / "chroma", corpus, embedder).search("Page 3499", 1)[0][0] == "page_3499"


KILLED = """
import sys
from pathlib import Path
from slimrl.retrieval.corpus import Corpus
from slimrl.retrieval.index import build_index
from tests.retrieval.test_index import Letters
directory = Path(sys.argv[1])
corpus = Corpus(directory / "corpus.sqlite")
build_index(directory / "chroma", corpus, Letters(delay_s=0.2), lambda count: print(count, flush=True))
"""


def test_a_killed_build_goes_on_where_it_was(tmp_path):
    corpus = numbered(tmp_path, 10_000)
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == process.stdout.readline() == b"1000\n"
        process.send_signal(signal.SIGKILL)
    embedder = Letters()
    added = build_index(tmp_path / "chroma", corpus, embedder, ignore)
    assert 6000 <= added == embedder.embedded <= 8000
    index = TitleIndex(tmp_path / "chroma", corpus, embedder)
    for number in (0, 999, 1000, 2500, 9999):
        assert f"page_{number}" in [page_id for page_id, _ in index.search(f"Page {number}", 10)]


def test_a_stale_index_is_refused_until_it_is_rebuilt(tmp_path):
    directory, corpus = tmp_path / "chroma", corpus_of(tmp_path)
    build_index(directory, corpus, Letters(), ignore)
    other = corpus_of(tmp_path, TITLES[:3])
    with pytest.raises(UserError, match=r"another corpus than the present one: run `uv run python scripts/setup"):
        TitleIndex(directory, other, Letters())
    with pytest.raises(UserError, match="another corpus and embedder than"):
        build_index(directory, other, Letters("new"), ignore)
    assert build_index(directory, other, Letters("new"), ignore, rebuild=True) == 3
    assert len(TitleIndex(directory, other, Letters("new")).search("x", 10)) == 3
    about = json.loads((directory / ABOUT).read_text())
    (directory / ABOUT).write_text(json.dumps(about | {"chroma": "0"}))
    with pytest.raises(UserError, match="another chroma than"):
        TitleIndex(directory, other, Letters("new"))


def test_what_is_no_index_is_named(tmp_path):
    corpus = corpus_of(tmp_path)
    with pytest.raises(UserError, match="there is no index"):
        TitleIndex(tmp_path / "chroma", corpus, Letters())
    build_index(tmp_path / "chroma", corpus, Letters(), ignore)
    (tmp_path / "chroma" / ABOUT).write_text("{")
    with pytest.raises(UserError, match="is damaged"):
        TitleIndex(tmp_path / "chroma", corpus, Letters())
