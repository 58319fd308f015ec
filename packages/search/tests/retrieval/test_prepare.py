"""A corpus and its index in one directory: built once, by one process, and told apart from others."""

from pathlib import Path

import pytest

from packages.search.tests.retrieval.test_index import Bars, Letters
from slimrl.errors import UserError
from slimrl_search.retrieval.encyclopedia import Encyclopedia
from slimrl_search.retrieval.prepare import GENERATED, Source, directory_of, prepare_corpus, prepare_index

pytest.importorskip("chromadb", reason="the extra [search] is not installed")
SMALL = Source(GENERATED, num_pages=20)


def test_what_is_there_is_opened_and_nothing_is_done(tmp_path):
    for done in (["writing the corpus", "embedding titles", "indexing titles"], []):
        bars = Bars()
        index = prepare_index(tmp_path, prepare_corpus(tmp_path, SMALL, bars), Letters(), bars)
        assert list(bars.done) == done and len(index.search("x", 30)) == 20


def test_pages_that_other_code_generated_are_stale_and_have_another_directory_in_the_cache(tmp_path, monkeypatch):
    prepare_corpus(tmp_path, SMALL, Bars())
    before, pages = directory_of(SMALL, ""), list(Encyclopedia(20).pages())
    assert before == directory_of(SMALL, "") and before.name.startswith("generated-20-0-")
    monkeypatch.setattr(Encyclopedia, "pages", lambda self: iter([*pages[:7], pages[8], pages[7], *pages[9:]]))
    with pytest.raises(UserError, match=r"made from generated, 20 pages, seed 0, \w+, and now .* seed 0, \w+: run `"):
        prepare_corpus(tmp_path, SMALL, Bars())
    assert directory_of(SMALL, "") != before and directory_of(SMALL, "data") == Path("data")


def test_a_changed_or_renamed_file_and_another_reader_are_noticed_and_a_corpus_of_files_is_named(tmp_path, monkeypatch):
    pages = tmp_path / "my pages"
    pages.mkdir()
    for name in "ab":
        (pages / f"{name}.md").write_text("# A")
    source, directory = Source(str(pages)), tmp_path / "data"

    def is_stale() -> None:
        with pytest.raises(UserError, match=r"2 files, 6 bytes.* --corpus '.*my pages' --data-dir .*`"):
            prepare_corpus(directory, source, Bars())

    assert prepare_corpus(directory, source, Bars()).page("a") is not None
    with monkeypatch.context() as patch:
        patch.setattr("slimrl_search.retrieval.prepare.READER", 1)
        is_stale()
    (pages / "a.md").rename(pages / "c.md")
    is_stale()
    (pages / "c.md").rename(pages / "a.md")
    assert prepare_corpus(directory, source, Bars()).page("a") is not None
    (pages / "a.md").write_text("# A, and more")
    is_stale()
    assert next(prepare_corpus(directory, source, Bars(), rebuild=True).titles()) == ("a", "A, and more")


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"could not be written: .* choose another --data-dir"):
        prepare_corpus(tmp_path / "file" / "data", SMALL, Bars())
