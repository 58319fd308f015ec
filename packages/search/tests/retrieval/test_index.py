"""The index: real Chroma, and an embedder that is quick and knows no more than letters."""

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slimrl.errors import UserError
from slimrl_search.retrieval.corpus import Corpus, build_corpus
from slimrl_search.retrieval.index import TitleIndex, build_index, whole_in, writable
from slimrl_search.retrieval.pages import Page

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


class Bars:
    """Counts what is done, by what is being done, and calls `on_advance` after each part."""

    def __init__(self, on_advance: Any = None) -> None:
        self.done: dict[str, list[int]] = {}
        self._on_advance = on_advance or (lambda: None)

    @contextmanager
    def __call__(self, what: str, total: int) -> Iterator["Bars"]:
        self._current = self.done.setdefault(what, [])
        yield self

    def advance(self, count: int = 1) -> None:
        self._current.append(count)
        self._on_advance()


def ignore(count: int) -> None:
    pass


def corpus_of(directory: Path, titles: Sequence[str] = TITLES) -> Corpus:
    pages = (Page(title.lower().replace(" ", "_"), title, "") for title in titles)
    return build_corpus(directory / "corpus.sqlite", pages, "a test", ignore)


def numbered(directory: Path, num: int) -> Corpus:
    return corpus_of(directory, [f"Page {number}" for number in range(num)])


def built(directory: Path) -> Path:
    place = whole_in(directory / "chroma")
    assert place is not None
    return place


def made(directory: Path, titles: Sequence[str] = TITLES) -> tuple[Path, Corpus]:
    corpus = corpus_of(directory, titles)
    assert build_index(directory / "chroma", corpus, Letters(), Bars()) == len(corpus)
    return directory / "chroma", corpus


def test_the_nearest_titles_come_first_and_a_repeated_query_is_not_embedded_again(tmp_path):
    directory, corpus = made(tmp_path)
    index = TitleIndex(directory, corpus, embedder := Letters())
    before = embedder.embedded
    for _ in range(2):
        assert index.search("apollo eleven", 3)[0] == ("apollo_11", "Apollo 11")
    assert embedder.embedded == before + 1
    assert index.search("\u05e9\u05dc\u05d5\u05dd", 1) == (("\u05e9\u05dc\u05d5\u05dd_\U0001f98a", TITLES[-1]),)
    assert len(index.search("x", 100)) == len(TITLES)


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the usual, so that a few hundred titles take several."""
    monkeypatch.setattr("slimrl_search.retrieval.index.BATCH", 100)


@pytest.mark.parametrize(
    ("parts", "embedded"),
    [(2, 200), *(pytest.param(*one, marks=pytest.mark.slow) for one in ((1, 100), (4, 350), (6, 350)))],
)
def test_an_interrupted_build_goes_on_where_it_was(tmp_path, small_batches: None, parts: int, embedded: int):
    corpus, embedder = numbered(tmp_path, 350), Letters()
    left = iter(range(parts - 1))

    def interrupt() -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_index(tmp_path / "chroma", corpus, embedder, Bars(interrupt))
    assert embedder.embedded == embedded
    with pytest.raises(UserError, match=r"there is no complete index in .*: run `uv run"):
        TitleIndex(tmp_path / "chroma", corpus, embedder)
    assert build_index(tmp_path / "chroma", corpus, embedder, Bars()) == 350 - embedded
    assert embedder.embedded == 350
    assert TitleIndex(tmp_path / "chroma", corpus, embedder).search("Page 349", 1)[0][0] == "page_349"


KILLED = """
import sys
from pathlib import Path
from slimrl_search.retrieval.corpus import Corpus
from slimrl_search.retrieval.index import build_index
from packages.search.tests.retrieval.test_index import Bars, Letters
directory = Path(sys.argv[1])
corpus = Corpus(directory / "corpus.sqlite")
build_index(directory / "chroma", corpus, Letters(delay_s=0.05), Bars(lambda: print("part", flush=True)))
"""


@pytest.mark.nightly
def test_a_build_that_is_killed_again_and_again_goes_on_and_ends_whole(tmp_path):
    corpus, rng = numbered(tmp_path, 10_000), random.Random(0)
    for parts in (3, 5, 10, 4, 8):  # one for the vectors that are there, up to 10 for others, and 10 for the collection
        with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for _ in range(parts):
                assert process.stdout.readline() == b"part\n"
            time.sleep(rng.uniform(0, 0.1))
            process.send_signal(signal.SIGKILL)
    embedder = Letters()
    assert build_index(tmp_path / "chroma", corpus, embedder, Bars()) == embedder.embedded == 0
    index = TitleIndex(tmp_path / "chroma", corpus, embedder)
    for number in rng.sample(range(10_000), 100):
        assert f"page_{number}" in [page_id for page_id, _ in index.search(f"Page {number}", 10)]


@pytest.mark.slow
def test_a_stale_index_is_refused_until_it_is_rebuilt(tmp_path, monkeypatch):
    directory, _ = made(tmp_path)
    other = corpus_of(tmp_path, TITLES[:3])
    stale = r"made from another corpus, embedder or version of Chroma .*: run `uv run python scripts/setup"
    with pytest.raises(UserError, match=stale):
        TitleIndex(directory, other, Letters())
    with pytest.raises(UserError, match=stale):
        build_index(directory, other, Letters("new"), Bars())
    assert build_index(directory, other, Letters("new"), Bars(), rebuild=True) == 3
    assert len(TitleIndex(directory, other, Letters("new")).search("x", 10)) == 3
    with monkeypatch.context() as patch:
        patch.setattr("importlib.metadata.version", lambda name: "0.9")
        with pytest.raises(UserError, match=stale):
            TitleIndex(directory, other, Letters("new"))
    with pytest.raises(UserError, match=stale):
        TitleIndex(directory, other, Letters())


@pytest.mark.slow
def test_an_index_that_is_rebuilt_while_it_is_open_answers_anew(tmp_path):
    directory, corpus = made(tmp_path)
    old = TitleIndex(directory, corpus, Letters())
    assert old.search("apollo", 1)[0][0] == "apollo_11"
    other = corpus_of(tmp_path, [f"Apollo {number}" for number in range(20, 20 + len(TITLES))])
    build_index(directory, other, Letters(), Bars(), rebuild=True)
    new = TitleIndex(directory, other, Letters())
    assert {page_id for page_id, _ in new.search("apollo", 10)} == {f"apollo_{n}" for n in range(20, 20 + len(TITLES))}
    old.close()
    assert new.search("apollo 21", 1)[0][0] == "apollo_21"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("*/chroma.sqlite3", b""),
        ("*/chroma.sqlite3", b"no database" * 1000),
        ("*/*/index_metadata.pickle", b"half"),  # as Chroma leaves it when it is killed
        ("*/*/data_level0.bin", b"half"),  # from which Chroma ends the process, or answers wrongly
        ("*/SHA256SUMS", b""),  # as in an index that was deleted in part
    ],
)
def test_a_damaged_index_is_named_and_can_be_rebuilt(tmp_path, file: str, content: bytes):
    directory, corpus = made(tmp_path, [f"Page {number}" for number in range(1000)])
    (damaged,) = directory.glob(file)
    damaged.write_bytes(content)
    with pytest.raises(UserError, match=r"is damaged.*which builds it anew"):
        TitleIndex(directory, corpus, Letters())
    assert build_index(directory, corpus, Letters(), Bars(), rebuild=True) == 1000
    assert TitleIndex(directory, corpus, Letters()).search("Page 7")[0] == ("page_7", "Page 7")


def test_no_index_and_a_directory_that_cannot_be_written_to_are_named(tmp_path):
    corpus = corpus_of(tmp_path)
    with pytest.raises(UserError, match="there is no complete index"):
        TitleIndex(tmp_path / "chroma", corpus, Letters())
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot take the index: .* the same command continues"):
        build_index(tmp_path / "file" / "chroma", corpus, Letters(), Bars())


def test_an_index_that_cannot_be_written_to_is_copied(tmp_path: Path, monkeypatch):
    directory, corpus = made(tmp_path)
    assert writable(directory) == directory
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # whoever is root is let write anyway
    copy = writable(directory)
    assert copy.is_relative_to(tmp_path / "tmp")
    assert TitleIndex(copy, corpus, Letters()).search("apollo eleven", 3)[0] == ("apollo_11", "Apollo 11")
    (tmp_path / "tmp").rename(tmp_path / "gone")
    monkeypatch.setattr("tempfile.mkdtemp", lambda prefix: str(tmp_path / "corpus.sqlite" / prefix))
    with pytest.raises(UserError, match=r"nor copied .*DOCKER_TMP_LIMIT"):
        writable(directory)
