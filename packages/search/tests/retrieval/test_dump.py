"""Dumps as wikis write them: several revisions of a page, namespaces of their own, pages that cannot be read."""

from pathlib import Path

import pytest

from slimrl_search.retrieval.pages import Page
from slimrl_search.retrieval.sources import read_pages

mwparserfromhell = pytest.importorskip("mwparserfromhell", reason="the extra [wikitext] is not installed")
DUMPS = Path(__file__).parent / "dumps"
HARBOUR = "Harbour is a town in Norland. It has 4120 inhabitants."
SUPPRESSED = '<text bytes="9" deleted="deleted" />'


def read(path: Path) -> list[Page]:
    return list(read_pages(str(path), "`corpus`"))


def dump(directory: Path, *pages: str, **namespaces: str) -> Path:
    path = directory / "wiki.xml"
    head = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/">'
    names = "".join(f'<namespace key="{key[1:]}">{name}</namespace>' for key, name in namespaces.items())
    siteinfo = f"<siteinfo><namespaces>{names}</namespaces></siteinfo>"
    path.write_text(f"{head}{siteinfo}{''.join(pages)}</mediawiki>", encoding="utf-8")
    return path


def page(*revisions: str, title: str = "A", rest: str = "<ns>0</ns><id>1</id>") -> str:
    return f"<page><title>{title}</title>{rest}{''.join(revisions)}</page>"


def revision(text: str, time: str = "", number: int | None = None, model: str = "wikitext", bare: str = "") -> str:
    """A revision with a text, or with `bare` as the whole element `text`."""
    stamp = f"<timestamp>{time}</timestamp>" if time else ""
    own = f"<id>{number}</id>" if number is not None else ""
    return f"<revision>{own}{stamp}<model>{model}</model>{bare or f'<text>{text}</text>'}</revision>"


@pytest.mark.parametrize(
    ("file", "lines"),
    [
        ("history.xml", ["# Millbrook", "Millbrook has 1,410 inhabitants. Its mayor is Ida Holm."]),
        ("namespaces_es.xml", ["# Puenteviejo", "Puenteviejo es un municipio. Tiene 812 habitantes."]),
        ("nested_file.xml", ["# Harbour", HARBOUR, "## History", "It was founded in 1871."]),
    ],
)
def test_a_dump_gives_the_newest_text_without_pictures(file: str, lines: list[str], capsys):
    (found,) = read(DUMPS / file)
    assert [line for line in found.content.splitlines() if line] == lines and not capsys.readouterr().err


@pytest.mark.parametrize(
    ("revisions", "content"),
    [
        ([revision("new", "2025-03-01T10:00:00Z", 5), revision("old", "2011-03-01T10:00:00Z", 9)], "new"),
        ([revision("old", number=20), revision("new", number=22), revision("older", number=19)], "new"),
        ([revision("old"), revision("new")], "new"),
        ([revision("old", "2025-03-01T10:00:00Z", 1), revision("new", "2025-03-01T10:00:00Z", 2)], "new"),
        ([revision("old", "2011-03-01T10:00:00Z"), revision("", "2025-03-01T10:00:00Z", bare='<text bytes="0"/>')], ""),
        # A suppressed revision gives way to the newest that can be read.
        ([revision("old", number=1), revision("new", number=2), revision("", number=3, bare=SUPPRESSED)], "new"),
        ([revision("", number=3, bare=SUPPRESSED), revision("old", number=1), revision("new", number=2)], "new"),
    ],
)  # fmt: skip
def test_the_newest_readable_revision_is_the_page(tmp_path, revisions: list[str], content: str):
    (found,) = read(dump(tmp_path, page(*revisions)))
    assert found.content == f"# A\n\n{content}"


def test_pages_that_cannot_be_read_are_named_and_the_others_come(tmp_path, monkeypatch, capsys):
    parse = mwparserfromhell.parse

    def failing(text: str) -> object:
        if "bad" in text:
            raise mwparserfromhell.parser.ParserError("Tokenizer exited with non-empty token stack.")
        return parse(text)

    monkeypatch.setattr(mwparserfromhell, "parse", failing)
    pages = [
        page(revision("one"), title="One"),
        page(revision("", bare='<text bytes="1234" id="77" />'), title="Stub"),  # of a dump of stubs
        page(revision("", bare=SUPPRESSED), title="Gone"),
        page(revision("{}", model="json"), title="Data"),
        page(title="Nothing"),
        page(revision("x"), title=""),
        page(revision("bad"), title="Bad"),
        page(revision("two"), title="Two"),
        *(page(title=f"P{number}") for number in range(10)),
    ]
    assert [one.title for one in read(dump(tmp_path, *pages))] == ["One", "Two"]
    said = capsys.readouterr().err
    named = [
        "Stub (the dump has no text of it)",
        "Gone (the dump has no text of it)",
        "Data (its content is json, not wikitext)",
        "Nothing (the dump has no text of it)",
        "the page of the number 1 (it has no title)",
        "Bad (ParserError: ",
    ]
    assert said.startswith(f"unreadable pages left out: 16, such as {'; '.join(named)}") and "P4" not in said


@pytest.mark.parametrize(
    ("file", "category", "text"),
    [
        ("Datei", "Kategorie", "[[Bild:A.jpg|mini|hochkant=1.2|X]]A[[datei : b.svg|20px]] [[KATEGORIE:X|Y]]"),
        ("Fichier", "Catégorie", "[[Fichier:A.jpg|vignette|gauche|B [[C]]]]\nA\n[[Catégorie:X]]"),
        ("Файл", "Категория", "[[файл:A.jpg|мини|слева|Б]]A[[Изображение:Б.png|обрамить]][[Категория:X]]"),
        ("DOSYA", "Kategori", "[[Resim:A.jpg|küçükresim|X]]A[[dosya:B.webm|sağ]][[Kategori:X]]"),
        ("קובץ", "קטגוריה", "[[\u200fקובץ:A.jpg|ממוזער|X]]A[[תמונה:ב.png]][[קטגוריה:X]]"),
        ("Schaubild", "Category", "[[schaubild:x|y]]A[[Category:X]]"),
    ],
)
def test_pictures_and_categories_go_in_other_languages(tmp_path, file: str, category: str, text: str):
    (found,) = read(dump(tmp_path, page(revision(text)), _6=file, _14=category))
    assert found.content == "# A\n\nA"


def test_a_wikis_own_names_count_and_tell_the_namespace_of_a_page_without_its_number(tmp_path):
    (found,) = read(dump(tmp_path, page(revision("See [[Image:Lights|the lights]].")), _100="Image"))
    assert found.content == "# A\n\nSee the lights."
    pages = [page(revision("x"), title=title, rest="") for title in ("A", "Diskussion:A", "File:A.jpg", "2001: B")]
    assert [one.title for one in read(dump(tmp_path, *pages, _1="Diskussion"))] == ["A", "2001: B"]
