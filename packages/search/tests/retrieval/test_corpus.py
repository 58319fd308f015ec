"""A corpus on disk: what goes in comes out, and nothing half-written is ever taken for it."""

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from slimrl.errors import UserError
from slimrl_search.retrieval.corpus import Corpus, build_corpus
from slimrl_search.retrieval.pages import Page

PAGES = [
    Page("2001:_a_space_odyssey", "2001: A Space Odyssey", "# 2001\n"),
    Page("empty", "Empty", ""),
    Page(
        "\u05e9\u05dc\u05d5\u05dd", "\u05e9\u05dc\u05d5\u05dd \U0001f98a", "# \u05e9\u05dc\u05d5\u05dd\n\x00 and so on"
    ),
    Page("long", "Long", "word " * 200_000),
]


def ignore(count: int) -> None:
    pass


def built(directory: Path, pages: list[Page] = PAGES, source: str = "a test") -> Corpus:
    return build_corpus(directory / "corpus.sqlite", iter(pages), source, ignore)


def test_pages_come_back_as_they_were(tmp_path):
    counts: list[int] = []
    pages = (Page(f"p{number}", "P", "") for number in range(2345))
    build_corpus(tmp_path / "corpus.sqlite", pages, "a test", counts.append)
    assert sum(counts) == 2345 and len(counts) == 3
    corpus = built(tmp_path)
    assert len(corpus) == 4 and corpus.source == "a test"
    assert [corpus.page(page.id) for page in PAGES] == PAGES
    assert "empty" in corpus and "Empty" not in corpus and corpus.page("nobody") is None
    assert list(corpus.titles()) == [(page.id, page.title) for page in PAGES]


def test_the_fingerprint_is_of_every_page_in_order(tmp_path):
    def fingerprint(pages: list[Page]) -> str:
        return built(tmp_path, pages).fingerprint

    first = fingerprint(PAGES)
    assert fingerprint(PAGES) == first
    moved = Page("empty", "Empt", "y")  # the same characters, parted elsewhere
    others = [PAGES[::-1], PAGES[:-1], [*PAGES[:1], moved, *PAGES[2:]]]
    assert len({first, *map(fingerprint, others)}) == 4


def test_a_repeated_id_and_an_empty_corpus_are_refused_and_leave_nothing(tmp_path):
    with pytest.raises(UserError, match=r"'empty' \(Another\) comes twice"):
        built(tmp_path, [*PAGES, Page("empty", "Another", "")])
    with pytest.raises(UserError, match="no pages"):
        built(tmp_path, [])
    assert not (tmp_path / "corpus.sqlite").exists()


def test_an_interrupted_build_leaves_the_old_corpus_and_is_begun_again(tmp_path):
    built(tmp_path, PAGES[:1])

    def interrupted() -> Iterator[Page]:
        yield from PAGES
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_corpus(tmp_path / "corpus.sqlite", interrupted(), "a test", ignore)
    assert len(Corpus(tmp_path / "corpus.sqlite")) == 1
    assert len(built(tmp_path)) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.sqlite"]


def test_what_is_no_corpus_is_named(tmp_path):
    path = tmp_path / "corpus.sqlite"
    with pytest.raises(UserError, match="there is no corpus"):
        Corpus(path)
    path.write_text("garbage" * 1000)
    with pytest.raises(UserError, match=r"is no corpus of slimrl's.*which builds it anew"):
        Corpus(path)
    path.unlink()
    built(tmp_path).close()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE about SET value = '0' WHERE name = 'format'")
    database.close()
    with pytest.raises(UserError, match="has the format 0"):
        Corpus(path)


def test_threads_may_share_it(tmp_path):
    corpus, found = built(tmp_path), []

    def read() -> None:
        found.extend(corpus.page(page.id) == page for page in PAGES * 50)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 800
