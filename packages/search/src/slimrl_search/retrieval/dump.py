"""Reads the articles of a MediaWiki dump as a stream. A dump has either one revision or all revisions of each page.

A page that cannot be read is left out and reported; the other pages of the dump are kept.
"""

import bz2
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path
from typing import IO

from slimrl.errors import UserError
from slimrl.io.cache import say
from slimrl.io.regular_file import open_regular
from slimrl_search.retrieval.pages import Page, page_of
from slimrl_search.retrieval.wikitext import ARTICLE, UnreadableError, Wiki, markdown_of

MAX_NAMED = 10  # unreadable pages that are named
READER = 5  # this reader's version; a corpus of an older version is rebuilt, because its pages differ
WIKITEXT = ("wikitext", "")  # the content models of articles; old dumps have none


def read_dump(path: Path, check: str, taken: set[str]) -> Iterator[Page]:
    """Yield the articles of a MediaWiki dump in their newest revisions: the pages of namespace 0 without redirects.

    An id is the title in lower case. If the id is already in `taken`, a number is appended to it. `check` names the
    setting with the path, for messages. Unreadable pages are reported at the end. Raises UserError if the file is not a
    complete dump.
    """
    left_out, num_left_out = list[str](), 0
    with open_regular(path, f" Check {check}.") as raw, bz2.open(raw) if path.suffix == ".bz2" else raw as file:
        try:
            for wiki, element, revision in _pages_of(file):
                title, space = _text(element, "title").strip(), _text(element, "ns")
                number = int(space) if space.lstrip("-").isdecimal() else wiki.namespace_of(title)
                if number != ARTICLE or element.find("{*}redirect") is not None:
                    continue
                try:
                    content = f"# {title}\n\n{_markdown(title, revision, wiki)}"
                except UnreadableError as error:
                    name = title or f"the page of the number {_text(element, 'id') or 'unknown'}"
                    num_left_out += 1
                    if num_left_out <= MAX_NAMED:
                        left_out.append(f"{name} ({error})")
                    continue
                page_id = _free(title.lower().replace(" ", "_"), taken)
                yield page_of({"id": page_id, "title": title, "content": content}, f"{path}: {title}")
        except (ElementTree.ParseError, OSError, EOFError) as error:
            raise UserError(f"{path} is no MediaWiki dump, or not a whole one: {error}.") from error
    if left_out:
        say(f"unreadable pages left out: {num_left_out:,}, such as {'; '.join(left_out)}")


def _markdown(title: str, revision: ElementTree.Element | None, wiki: Wiki) -> str:
    """Return the text of an article as markdown. Raises UnreadableError if it has no title or no text, or is not
    wikitext."""
    if not title:
        raise UnreadableError("it has no title")
    if revision is None or not _has_text(revision):
        raise UnreadableError("the dump has no text of it")
    if (model := _text(revision, "model")) not in WIKITEXT:
        raise UnreadableError(f"its content is {model}, not wikitext")
    return markdown_of(revision.findtext("{*}text") or "", wiki)


def _pages_of(file: IO[bytes]) -> Iterator[tuple[Wiki, ElementTree.Element, ElementTree.Element | None]]:
    """Yield for each page the wiki, the `page` element without its revisions, and the page's newest revision."""
    events = iter(ElementTree.iterparse(file, events=("start", "end")))
    _, root = next(events)
    wiki, page, newest = Wiki({}), root, None
    for event, element in events:
        name = element.tag.rpartition("}")[2]
        if event == "start":
            if name == "page":
                page, newest = element, None
        elif name == "namespaces":
            wiki = Wiki({space.text or "": int(space.get("key", ARTICLE)) for space in element})
        elif name == "revision":
            if newest is None or _age(newest) <= _age(element):
                newest = element
            page.remove(element)  # all revisions of a page may fill the memory
        elif name == "page":
            yield wiki, element, newest
            root.clear()  # otherwise the whole dump, gigabytes, would stay in memory as the root's children


def _age(revision: ElementTree.Element) -> tuple[bool, str, int]:
    """Return a sort key of a revision: newer revisions have greater keys. A revision without a text counts as the
    oldest."""
    number = _text(revision, "id")
    return _has_text(revision), _text(revision, "timestamp"), int(number) if number.isdecimal() else 0


def _has_text(revision: ElementTree.Element) -> bool:
    """Return False if the revision's text is suppressed, or if the dump does not contain it, as in a dump of stubs."""
    text = revision.find("{*}text")
    return text is not None and "deleted" not in text.attrib and bool(text.text or text.get("bytes", "0") == "0")


def _free(wanted: str, taken: set[str]) -> str:
    """Return `wanted`, or if it is taken, the first free id of `wanted_2`, `wanted_3`, ... Add the id to `taken`."""
    numbered = (f"{wanted}_{number}" for number in count(2))
    found = next(page_id for page_id in chain([wanted], numbered) if page_id not in taken)
    taken.add(found)
    return found


def _text(element: ElementTree.Element, name: str) -> str:
    """Return the text of the child element `name`; empty without such a child. The wildcard `{*}` matches any XML
    namespace."""
    return (element.findtext(f"{{*}}{name}") or "").strip()
