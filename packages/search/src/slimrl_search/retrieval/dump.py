"""The module reads the articles of a MediaWiki dump, with one revision of each page or all, as a stream.

A page that cannot be read is left out and reported; the other pages of the dump are kept.
"""

import bz2
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import IO

from slimrl.errors import UserError
from slimrl.io.regular_file import open_regular
from slimrl_search.retrieval.namespaces import ARTICLE, Wiki
from slimrl_search.retrieval.pages import Page, page_of
from slimrl_search.retrieval.wikitext import UnreadableError, markdown_of

# Called with the title of a page that is left out, and the reason.
OnLeftOut = Callable[[str, str], None]
READER = 3  # increased when the same dump gives other pages, so that an older corpus is built again
WIKITEXT = ("wikitext", "")  # the content models of articles; old dumps have none
LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


@dataclass(frozen=True, slots=True)
class Revision:
    """A revision of a page: its text, time and number, each None if the dump does not have it."""

    text: str | None
    model: str
    time: datetime | None
    number: int | None

    def is_older(self, later: "Revision") -> bool:
        """Return True if `later`, which follows in the file, is the newer revision: by the time, else by the number,
        else by the order in the file."""
        if self.time is not None and later.time is not None and self.time != later.time:
            return self.time < later.time
        if self.number is not None and later.number is not None:
            return self.number <= later.number
        return True


def read_dump(path: Path, check: str, taken: set[str], on_left_out: OnLeftOut) -> Iterator[Page]:
    """Yield the articles of a MediaWiki dump in their newest revisions: the pages of namespace 0 without redirects.

    An id that is in `taken` gets a number, because two titles may differ in capitals alone. Raises UserError if the
    file is not a complete dump.
    """
    with open_regular(path, f" Check {check}.") as raw, _unpack(raw, path) as file:
        try:
            for wiki, element, revision in _pages_of(file):
                title, space = _text(element, "title").strip(), _text(element, "ns")
                number = int(space) if space.lstrip("-").isdecimal() else wiki.namespace_of(title)
                if number != ARTICLE or element.find("{*}redirect") is not None:
                    continue
                try:
                    content = f"# {title}\n\n{_markdown(title, revision, wiki)}"
                except UnreadableError as error:
                    on_left_out(title or f"the page of the number {_text(element, 'id') or 'unknown'}", str(error))
                    continue
                page_id = _free(title.lower().replace(" ", "_"), taken)
                yield page_of({"id": page_id, "title": title, "content": content}, f"{path}: {title}")
        except (ElementTree.ParseError, OSError, EOFError) as error:
            raise UserError(f"{path} is no MediaWiki dump, or not a whole one: {error}.") from error


def _markdown(title: str, revision: Revision | None, wiki: Wiki) -> str:
    """Return the text of an article. Raises UnreadableError if it has no text."""
    if not title:
        raise UnreadableError("it has no title")
    if revision is None or revision.text is None:
        raise UnreadableError("the dump has no text of it")
    if revision.model not in WIKITEXT:
        raise UnreadableError(f"its content is {revision.model}, not wikitext")
    return markdown_of(revision.text, wiki)


def _pages_of(file: IO[bytes]) -> Iterator[tuple[Wiki, ElementTree.Element, Revision | None]]:
    """Yield the wiki, each `page` element without its revisions, and the newest revision of the page."""
    events = iter(ElementTree.iterparse(file, events=("start", "end")))
    _, root = next(events)
    language = root.get(LANGUAGE, "")
    wiki, page, newest = Wiki.of(language), root, None
    for event, element in events:
        name = element.tag.rpartition("}")[2]
        if event == "start":
            if name == "page":
                page, newest = element, None
        elif name == "namespaces":
            wiki = Wiki.of(language, {space.text or "": int(space.get("key", ARTICLE)) for space in element})
        elif name == "revision":
            found = _revision(element)
            # The text of a revision may be suppressed; then the newest readable one represents the page.
            if newest is None or newest.text is None or (found.text is not None and newest.is_older(found)):
                newest = found
            page.remove(element)  # all revisions of a page may fill the memory
        elif name == "page":
            yield wiki, element, newest
            root.clear()  # otherwise the whole dump, gigabytes, would stay in memory as the root's children


def _revision(element: ElementTree.Element) -> Revision:
    text, number = element.find("{*}text"), _text(element, "id")
    return Revision(
        text=None if text is None or _is_missing(text) else (text.text or ""),
        model=_text(element, "model"),
        time=_time(_text(element, "timestamp")),
        number=int(number) if number.isdecimal() else None,
    )


def _is_missing(text: ElementTree.Element) -> bool:
    """Return True if the text is suppressed, or is stored elsewhere, as in a dump of stubs."""
    return "deleted" in text.attrib or (not text.text and text.get("bytes", "0") != "0")


def _time(text: str) -> datetime | None:
    """Parse an ISO timestamp; None if it is malformed."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _free(wanted: str, taken: set[str]) -> str:
    """Return the wanted id, or `wanted_2` and so on if it is taken, and add it to `taken`."""
    numbered = (f"{wanted}_{number}" for number in count(2))
    found = next(page_id for page_id in chain([wanted], numbered) if page_id not in taken)
    taken.add(found)
    return found


def _unpack(raw: IO[bytes], path: Path) -> IO[bytes]:
    """Return the stream, decompressed if the file's name has the suffix `.bz2`."""
    return bz2.open(raw) if path.suffix == ".bz2" else raw


def _text(element: ElementTree.Element, name: str) -> str:
    """Return the text of a child, or an empty text. The wildcard `{*}` matches any XML namespace."""
    return (element.findtext(f"{{*}}{name}") or "").strip()
