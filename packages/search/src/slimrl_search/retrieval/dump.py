"""The module reads the articles of a MediaWiki dump, of one revision a page or of all, as a stream.

A page that cannot be read is left out and reported, so that it costs the dump one page.
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

# Called with the title of a page that is left out, and why.
OnLeftOut = Callable[[str, str], None]
READER = 3  # another number when the same dump gives other pages, so that a corpus of an earlier one is built anew
WIKITEXT = ("wikitext", "")  # the models of content that are articles; old dumps name none
LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


@dataclass(frozen=True, slots=True)
class Revision:
    """A revision of a page: its text, or None where the dump has none, and its time and number where it has them."""

    text: str | None
    model: str
    time: datetime | None
    number: int | None

    def is_older(self, later: "Revision") -> bool:
        """Whether a revision that comes later in the file is the newer one: by the time, else the number, else the
        place in the file."""
        if self.time is not None and later.time is not None and self.time != later.time:
            return self.time < later.time
        if self.number is not None and later.number is not None:
            return self.number <= later.number
        return True


def read_dump(path: Path, check: str, taken: set[str], on_left_out: OnLeftOut) -> Iterator[Page]:
    """The articles of a MediaWiki dump, each as in its newest revision: the pages of name space 0 without redirects.

    An id that is in `taken` gets a number: two titles may differ in capitals alone. Raises UserError if the file is no
    dump, or ends too early.
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
    """The text of an article. Raises UnreadableError where there is none."""
    if not title:
        raise UnreadableError("it has no title")
    if revision is None or revision.text is None:
        raise UnreadableError("the dump has no text of it")
    if revision.model not in WIKITEXT:
        raise UnreadableError(f"its content is {revision.model}, not wikitext")
    return markdown_of(revision.text, wiki)


def _pages_of(file: IO[bytes]) -> Iterator[tuple[Wiki, ElementTree.Element, Revision | None]]:
    """The elements `page` of a dump without their revisions, the newest of these, and the wiki of both."""
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
            # The text of a revision may be suppressed; then the newest that can be read stands for the page.
            if newest is None or newest.text is None or (found.text is not None and newest.is_older(found)):
                newest = found
            page.remove(element)  # a page may have as many revisions as fill the memory
        elif name == "page":
            yield wiki, element, newest
            root.clear()  # else the whole dump, gigabytes, would stay in memory as the root's children


def _revision(element: ElementTree.Element) -> Revision:
    text, number = element.find("{*}text"), _text(element, "id")
    return Revision(
        text=None if text is None or _is_missing(text) else (text.text or ""),
        model=_text(element, "model"),
        time=_time(_text(element, "timestamp")),
        number=int(number) if number.isdecimal() else None,
    )


def _is_missing(text: ElementTree.Element) -> bool:
    """Whether the text is suppressed, or is kept elsewhere, as in a dump of stubs."""
    return "deleted" in text.attrib or (not text.text and text.get("bytes", "0") != "0")


def _time(text: str) -> datetime | None:
    """Parse an ISO timestamp; None if it is malformed."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _free(wanted: str, taken: set[str]) -> str:
    """The wanted id, or `wanted_2` and so on if it is taken; it is added to `taken`."""
    numbered = (f"{wanted}_{number}" for number in count(2))
    found = next(page_id for page_id in chain([wanted], numbered) if page_id not in taken)
    taken.add(found)
    return found


def _unpack(raw: IO[bytes], path: Path) -> IO[bytes]:
    """The stream, decompressed if the file's name ends in `.bz2`."""
    return bz2.open(raw) if path.suffix == ".bz2" else raw


def _text(element: ElementTree.Element, name: str) -> str:
    """The text of a child, or an empty one. The wildcard `{*}` matches any XML namespace."""
    return (element.findtext(f"{{*}}{name}") or "").strip()
