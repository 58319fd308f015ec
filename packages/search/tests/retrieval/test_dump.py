"""Dumps as wikis write them: several revisions of a page, namespaces of their own, pages that cannot be read."""

from pathlib import Path

import pytest

from packages.search.tests.retrieval.test_index import Bars
from slimrl_search.retrieval.corpus import StaleError
from slimrl_search.retrieval.pages import Page
from slimrl_search.retrieval.prepare import Source, prepare_corpus
from slimrl_search.retrieval.sources import read_pages

mwparserfromhell = pytest.importorskip("mwparserfromhell", reason="the extra [wikitext] is not installed")
DUMPS = Path(__file__).parent / "dumps"


def read(path: Path) -> tuple[list[Page], list[str]]:
    """The pages of a dump, and what is said of those that are left out."""
    left_out: list[str] = []
    pages = list(read_pages(str(path), "`corpus`", lambda title, why: left_out.append(f"{title}: {why}")))
    return pages, left_out


def dump(directory: Path, *pages: str, siteinfo: str = "", language: str = "en") -> Path:
    path = directory / "wiki.xml"
    head = f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" xml:lang="{language}">'
    path.write_text(f"{head}{siteinfo}{''.join(pages)}</mediawiki>", encoding="utf-8")
    return path


def page(*revisions: str, title: str = "A", rest: str = "<ns>0</ns><id>1</id>") -> str:
    return f"<page><title>{title}</title>{rest}{''.join(revisions)}</page>"


def revision(text: str, time: str = "", number: int | None = None, model: str = "wikitext", bare: str = "") -> str:
    """A revision with a text, or with `bare` as the whole element `text`."""
    stamp = f"<timestamp>{time}</timestamp>" if time else ""
    own = f"<id>{number}</id>" if number is not None else ""
    return f"<revision>{own}{stamp}<model>{model}</model>{bare or f'<text>{text}</text>'}</revision>"


def test_the_newest_of_several_revisions_is_the_page():
    (found,), left_out = read(DUMPS / "history.xml")
    assert found.content == "# Millbrook\n\nMillbrook has 1,410 inhabitants. Its mayor is Ida Holm." and not left_out


@pytest.mark.parametrize(
    "revisions",
    [
        [revision("new", "2025-03-01T10:00:00Z", 5), revision("old", "2011-03-01T10:00:00Z", 9)],  # newest first
        [revision("old", "2025-03-01T12:00:00+03:00"), revision("new", "2025-03-01T10:00:00Z")],
        [revision("old", number=20), revision("new", number=22), revision("older", number=19)],  # without times
        [revision("old", "2011-03-01T10:00:00Z", 1), revision("new", number=2)],  # not all have one
        [revision("old", "yesterday"), revision("new", "today")],
        [revision("old"), revision("new")],
        [revision("old", "2025-03-01T10:00:00Z", 1), revision("new", "2025-03-01T10:00:00Z", 2)],
    ],
)
def test_time_then_number_then_place_tell_which_revision_is_newest(tmp_path, revisions: list[str]):
    (found,), _ = read(dump(tmp_path, page(*revisions)))
    assert found.content == "# A\n\nnew"


def test_a_suppressed_revision_gives_way_to_the_newest_that_can_be_read(tmp_path):
    suppressed = revision("", "2025-03-01T10:00:00Z", 3, bare='<text bytes="9" deleted="deleted" />')
    older = [revision("first", "2011-03-01T10:00:00Z", 1), revision("second", "2012-03-01T10:00:00Z", 2)]
    assert [found.content for found in read(dump(tmp_path, page(*older, suppressed)))[0]] == ["# A\n\nsecond"]
    assert [found.content for found in read(dump(tmp_path, page(suppressed, *older)))[0]] == ["# A\n\nsecond"]
    assert read(dump(tmp_path, page(suppressed))) == ([], ["A: the dump has no text of it"])


def test_a_page_that_was_blanked_is_blank(tmp_path):
    blank = revision("", "2025-03-01T10:00:00Z", bare='<text bytes="0" />')
    (found,), _ = read(dump(tmp_path, page(revision("text", "2011-03-01T10:00:00Z"), blank)))
    assert found.content == "# A\n\n"


def test_pages_that_cannot_be_read_are_named_and_the_others_come(tmp_path):
    pages = [
        page(revision("one"), title="One"),
        page(revision("", bare='<text bytes="1234" id="77" />'), title="Stub"),  # of a dump of stubs
        page(revision("{}", model="json"), title="Data"),
        page(title="Nothing"),
        page(revision("x"), title=""),
        page(revision("two"), title="Two"),
    ]
    found, left_out = read(dump(tmp_path, *pages))
    assert [one.title for one in found] == ["One", "Two"]
    assert left_out == [
        "Stub: the dump has no text of it",
        "Data: its content is json, not wikitext",
        "Nothing: the dump has no text of it",
        "the page of the number 1: it has no title",
    ]


def test_a_page_on_which_the_parser_fails_is_counted_and_named(tmp_path, monkeypatch, capsys):
    parse = mwparserfromhell.parse

    def failing(text: str) -> object:
        if "bad" in text:
            raise mwparserfromhell.parser.ParserError("Tokenizer exited with non-empty token stack.")
        return parse(text)

    monkeypatch.setattr(mwparserfromhell, "parse", failing)
    pages = [page(revision(text), title=text.title()) for text in ("good", "bad", "better", "bad again")]
    corpus = prepare_corpus(tmp_path / "made", Source(str(dump(tmp_path, *pages))), Bars())
    assert [title for _, title in corpus.titles()] == ["Good", "Better"]
    said = capsys.readouterr().err
    assert said.startswith("2 pages could not be read and are left out: Bad (ParserError: ") and "; Bad Again (" in said


def test_a_dump_of_stubs_alone_says_why_it_has_no_pages(tmp_path, capsys):
    stubs = [page(revision("", bare='<text bytes="9" />'), title=f"P{number}") for number in range(120)]
    with pytest.raises(Exception, match="the corpus has no pages"):
        prepare_corpus(tmp_path / "made", Source(str(dump(tmp_path, *stubs))), Bars())
    said = capsys.readouterr().err
    assert said.startswith("120 pages could not be read") and "P99 (" in said and said.endswith("; and 20 more\n")


def test_a_corpus_of_an_earlier_reader_is_built_anew(tmp_path, monkeypatch):
    source = Source(str(dump(tmp_path, page(revision("x")))))
    monkeypatch.setattr("slimrl_search.retrieval.prepare.READER", 1)
    prepare_corpus(tmp_path / "made", source, Bars())
    monkeypatch.undo()
    with pytest.raises(StaleError, match=r"reader 1, and now it is to be from .* reader"):
        prepare_corpus(tmp_path / "made", source, Bars())


def test_a_picture_within_a_pictures_caption_goes_with_it():
    (found,), left_out = read(DUMPS / "nested_file.xml")
    lines = [line for line in found.content.splitlines() if line]
    assert lines == [
        "# Harbour",
        "Harbour is a town in Norland. It has 4120 inhabitants.",
        "## History",
        "It was founded in 1871.",
    ]
    assert not left_out


def test_a_wiki_names_its_namespaces():
    (found,), _ = read(DUMPS / "namespaces_es.xml")
    assert found.content == "# Puenteviejo\n\nPuenteviejo es un municipio. Tiene 812 habitantes."


@pytest.mark.parametrize(
    ("language", "file", "category", "text", "right"),
    [
        (
            "de",
            "Datei",
            "Kategorie",
            "[[Bild:A.jpg|mini|hochkant=1.2|X]]A[[datei : b.svg|20px]] [[KATEGORIE:X|Y]]",
            "A",
        ),
        ("fr", "Fichier", "Catégorie", "[[Fichier:A.jpg|vignette|gauche|B [[C]]]]\nA\n[[Catégorie:X]]", "A"),
        ("ru", "Файл", "Категория", "[[файл:A.jpg|мини|слева|Б]]А[[Изображение:Б.png|обрамить]][[Категория:X]]", "А"),
        ("ja", "ファイル", "Category", "[[ファイル:A.jpg|サムネイル|右|X]]東京[[画像:b.png]][[カテゴリ:X]]", "東京"),
        ("pt", "Ficheiro", "Categoria", "[[Imagem:A.jpg|miniaturadaimagem|X]]A[[Arquivo:B.ogg]][[Categoria:X]]", "A"),
        ("tr", "Dosya", "Kategori", "[[Resim:A.jpg|küçükresim|X]]A[[DOSYA:B.webm|sağ]][[Kategori:X]]", "A"),
        ("he", "קובץ", "קטגוריה", "[[\u200fקובץ:A.jpg|ממוזער|X]]א[[תמונה:ב.png]][[קטגוריה:X]]", "א"),
        ("zh", "File", "Category", "[[檔案:a.jpg|縮圖|b]]-{zh-hans:计算机; zh-hant:電腦}-[[分类:X]]", "计算机"),
        ("pl", "Plik", "Kategoria", "[[Grafika:A.jpg|mały|X]]A[[plik:_B.PNG]]__BEZSPISU__[[Kategoria:X]]", "A"),
    ],
)
def test_pictures_and_categories_go_in_other_languages(tmp_path, language, file, category, text, right):
    names = f'<namespace key="6" case="first-letter">{file}</namespace><namespace key="14">{category}</namespace>'
    siteinfo = f"<siteinfo><namespaces>{names}</namespaces></siteinfo>"
    (found,), _ = read(dump(tmp_path, page(revision(text)), siteinfo=siteinfo, language=language))
    assert found.content == f"# A\n\n{right}"


def test_a_wikis_own_names_count_in_that_wiki(tmp_path):
    names = '<namespace key="6">Schaubild</namespace><namespace key="100">Image</namespace>'
    siteinfo = f"<siteinfo><namespaces>{names}</namespaces></siteinfo>"
    text = "[[schaubild:A|x]]See [[Image:Lights|the lights]]."
    (found,), _ = read(dump(tmp_path, page(revision(text)), siteinfo=siteinfo))
    assert found.content == "# A\n\nSee the lights."


def test_where_pages_have_no_number_of_a_namespace_their_titles_tell(tmp_path):
    names = '<namespace key="1">Diskussion</namespace>'
    siteinfo = f"<siteinfo><namespaces>{names}</namespaces></siteinfo>"
    pages = [page(revision("x"), title=title, rest="") for title in ("A", "Diskussion:A", "File:A.jpg", "2001: B")]
    found, _ = read(dump(tmp_path, *pages, siteinfo=siteinfo))
    assert [one.title for one in found] == ["A", "2001: B"]
