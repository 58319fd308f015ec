"""Pages and questions from files, folders and dumps, good and bad."""

import bz2
import json
from pathlib import Path
from typing import Any

import pytest

from slimrl.errors import UserError
from slimrl_search.retrieval.pages import Page, Question
from slimrl_search.retrieval.sources import read_pages, read_questions

DUMP = (Path(__file__).parent / "dumps" / "ampere.xml").read_bytes()


def pages_of(source: Path) -> list[Page]:
    return list(read_pages(str(source), "`corpus`"))


def written(path: Path, *rows: Any) -> Path:
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return path


def test_rows_are_pages(tmp_path):
    row = {"id": "a", "title": " A ", "content": "# A\n\ud800"}
    path = written(tmp_path / "pages.jsonl", row, "", {"id": "b", "title": "B\u2028\U0001f98a"})
    assert pages_of(path) == [Page("a", "A", "# A\n?"), Page("b", "B\u2028\U0001f98a", "")]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"id": "a", "title": "  ", "content": ""}, r"pages\.jsonl:2: title = '  ': String should have at least 1"),
        ({"title": "A"}, r"pages\.jsonl:2: id = .*: Field required"),
        ({"id": 7, "title": "A"}, r"id = 7: Input should be a valid string"),
        ({"id": "a", "title": "A", "content": ["x"]}, r"content = \['x'\]: Input should be a valid string"),
        ("{", r"pages\.jsonl:2: .*'\{': Input should be a dictionary"),
        ([1], r"\[1\]: Input should be a dictionary"),
    ],
)
def test_a_bad_row_is_named(tmp_path, row: Any, said: str):
    with pytest.raises(UserError, match=said):
        pages_of(written(tmp_path / "pages.jsonl", {"id": "x", "title": "X"}, row))


def test_a_source_that_is_none_is_named(tmp_path):
    (tmp_path / "latin.jsonl").write_bytes(b'{"id": "\xe9"}')
    (tmp_path / "empty").mkdir()
    for source, said in [
        (tmp_path / "missing.jsonl", "No such file or directory. Check `corpus`"),
        (tmp_path / "missing.xml", "No such file or directory. Check `corpus`"),
        (tmp_path / "latin.jsonl", "is not UTF-8 text"),
        (tmp_path / "pages.csv", "neither a `.jsonl` or `.parquet` file, nor a folder"),
        (tmp_path / "empty", "there is no file of pages in .*empty: .* check `corpus`"),
    ]:
        with pytest.raises(UserError, match=said):
            pages_of(source)


def test_a_folder_of_files_of_every_kind(tmp_path):
    pytest.importorskip("mwparserfromhell", reason="the extra [wikitext] is not installed")
    datasets = pytest.importorskip("datasets", reason="the extra [data] is not installed")
    written(tmp_path / "one.jsonl", {"id": "one", "title": "One"})
    (tmp_path / "more").mkdir()
    datasets.Dataset.from_list([{"id": "two", "title": "Two", "more": 1}]).to_parquet(tmp_path / "more" / "two.parquet")
    (tmp_path / "more" / "bare.md").write_text("no heading")
    (tmp_path / "three.md").write_text("```\n# a comment\n```\n#\n## A title\ntext")
    (tmp_path / "wiki.xml-p1p9.bz2").write_bytes(bz2.compress(DUMP))
    (tmp_path / "licence.txt").write_text("x")
    found = pages_of(tmp_path)
    assert found[0] == Page("more/bare", "more/bare", "no heading") and found[3].title == "A title"
    assert [page.id for page in found[1:]] == ["two", "one", "three", "ampere", "2001:_a_space_odyssey"]
    written(tmp_path / "questions.jsonl", {"question": "When?", "answer": "1874"})
    with pytest.raises(UserError, match=r"questions\.jsonl:1: id = .*: Field required"):
        pages_of(tmp_path)


def test_titles_of_a_dump_that_differ_in_capitals_have_ids_of_their_own(tmp_path):
    pytest.importorskip("mwparserfromhell", reason="the extra [wikitext] is not installed")
    titles = ["Red meat", "Red Meat", "Red meat 2", "RED MEAT"]
    pages = "".join(f"<page><title>{t}</title><ns>0</ns><revision><text/></revision></page>" for t in titles)
    for part in ("a.xml", "b.xml"):
        (tmp_path / part).write_text(f"<mediawiki>{pages}</mediawiki>")
    found = [page.id for page in pages_of(tmp_path)]
    assert found[:4] == ["red_meat", "red_meat_2", "red_meat_2_2", "red_meat_3"]
    assert len(set(found)) == 8
    assert [page.id for page in pages_of(tmp_path / "b.xml")] == found[:4]


def test_a_mediawiki_dump(tmp_path):
    pytest.importorskip("mwparserfromhell", reason="the extra [wikitext] is not installed")
    for name, content in (("wiki.xml", DUMP), ("wiki.xml.bz2", bz2.compress(DUMP))):
        (tmp_path / name).write_bytes(content)
        ampere, odyssey = pages_of(tmp_path / name)
        assert (ampere.id, ampere.title) == ("ampere", "Ampere")
        assert "\n".join(line for line in ampere.content.splitlines() if line.strip()) == (
            "# Ampere\nThe ampere is a unit of current.\n## History\nNamed after Amp\u00e8re.\n* first\n1. second\n"
            "### Since 1948\nDefined anew.\n## History\nAgain."
        )
        assert (odyssey.id, odyssey.content) == ("2001:_a_space_odyssey", "# 2001: A Space Odyssey\n\n")


def test_half_a_dump_is_an_error_after_its_whole_pages(tmp_path):
    pytest.importorskip("mwparserfromhell", reason="the extra [wikitext] is not installed")
    (tmp_path / "wiki.xml").write_bytes(DUMP[: DUMP.index(b"<page><title>2001")])
    pages = read_pages(str(tmp_path / "wiki.xml"), "`corpus`")
    assert next(pages).id == "ampere"
    with pytest.raises(UserError, match="no MediaWiki dump, or not a whole one"):
        list(pages)


def test_rows_are_questions(tmp_path):
    def read(row: Any) -> Question:
        (question,) = read_questions(str(written(tmp_path / "q.jsonl", row)), "`questions`")
        return question

    row = {"question": " When? ", "answer": "1874", "aliases": ["in 1874"], "section": None, "split": "test", "x": 1}
    assert read(row) == Question("When?", "1874", aliases=("in 1874",), split="test")
    published = {"question": "When?", "answer": "1874", "filename": "Miles Teller.md"}
    assert read(published).page_id == "miles_teller"
    for bad, said in [
        ({"question": "When?"}, "q.jsonl:1: answer = .*: Field required"),
        ({"question": "When?", "answer": "x", "aliases": "y"}, "aliases = 'y': Input should be a valid tuple"),
        ({"question": "When?", "answer": "x", "split": "dev"}, "split = 'dev': Input should be 'train', 'validation'"),
        ("nonsense", "nonsense.*: Input should be a dictionary"),
    ]:
        with pytest.raises(UserError, match=said):
            read(bad)
