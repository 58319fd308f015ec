"""Where pages and questions come from: a data set on the Hub, a file of rows, a MediaWiki dump, a folder of files.

Every reader is a stream. Nothing is downloaded but from a Hub data set that was asked for by name.
"""

import bz2
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path
from typing import IO, Any

from slimrl.errors import UserError
from slimrl.io.rows import file_rows, hub_rows
from slimrl.retrieval.pages import Page, Question, page_of, question_of
from slimrl.retrieval.sections import sections_of
from slimrl.retrieval.wikitext import markdown_of

ROWS = (".jsonl", ".parquet")
MARKDOWN = ".md"
DUMP = re.compile(r".*\.xml(-p\d+p\d+)?(\.bz2)?")  # a large dump comes in parts, named after the pages in them


def read_pages(source: str, check: str, split: str = "train") -> Iterator[Page]:
    """The pages of a `.jsonl` or `.parquet` file (rows with `id`, `title`, `content`), of a MediaWiki `.xml` or
    `.xml.bz2` dump, of a folder of such files and of `.md` files, or of a data set on the Hub, `owner/name`.

    `check` names the setting that holds the source, for messages. Raises UserError."""
    path = Path(source).expanduser()
    if path.is_dir():
        files = files_of(path)
        if not files:
            raise UserError(
                f"there is no file of pages in {path}: neither `{MARKDOWN}` nor `.jsonl`, `.parquet`, `.xml` or "
                f"`.xml.bz2`; check {check}."
            )
        taken: set[str] = set()
        for file in files:
            if file.suffix == MARKDOWN:
                yield _markdown(file, path)
            elif DUMP.fullmatch(file.name):
                yield from _dump(file, check, taken)
            else:
                yield from read_pages(str(file), check)
    elif DUMP.fullmatch(path.name):
        yield from _dump(path, check, set())
    else:
        for row, where in _rows(source, check, split):
            yield page_of(row, where)


def files_of(path: Path) -> list[Path]:
    """The files that are read where `path` is the source, in order: itself, or whatever in a folder can hold pages."""
    if not path.is_dir():
        return [path]
    return sorted(
        file
        for file in path.rglob("*")
        if file.is_file() and (file.suffix in (*ROWS, MARKDOWN) or DUMP.fullmatch(file.name))
    )


def read_questions(source: str, check: str, split: str = "train") -> Iterator[Question]:
    """The questions of a `.jsonl` or `.parquet` file, or of a data set on the Hub: see `question_of`."""
    for row, where in _rows(source, check, split):
        yield question_of(row, where)


def _rows(source: str, check: str, split: str) -> Iterator[tuple[Any, str]]:
    path = Path(source).expanduser()
    if source.endswith(ROWS):
        return file_rows(path, check)
    if path.exists() or source.count("/") != 1 or source.startswith((".", "/", "~")):
        raise UserError(
            f"`{source}` is neither a `.jsonl` or `.parquet` file, nor a folder, a MediaWiki dump (`.xml`, "
            f"`.xml.bz2`), or a data set on the Hub (`owner/name`); check {check}."
        )
    return hub_rows(source, split, check)


def _markdown(path: Path, folder: Path) -> Page:
    """The page in a file: its id is the path within the folder, without the suffix; its title the first heading, or the
    id."""
    try:
        content = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text ({error}).") from error
    page_id = path.relative_to(folder).with_suffix("").as_posix()
    title = next((section.name for section in sections_of(content) if section.name), page_id)
    return page_of({"id": page_id, "title": title, "content": content}, str(path))


def _dump(path: Path, check: str, taken: set[str]) -> Iterator[Page]:
    """The articles of a MediaWiki dump: its first name space, without redirects. An id that is `taken`, as by a title
    that differs in nothing but capitals, gets a number."""
    if not path.is_file():
        raise UserError(f"cannot read {path}: no such file; check {check}.")
    with path.open("rb") as raw, _unpack(raw, path) as file:
        try:
            for element in _pages_of_dump(file):
                title = _text(element, "title")
                if _text(element, "ns") != "0" or element.find("{*}redirect") is not None:
                    continue
                content = f"# {title}\n\n{markdown_of(_text(element, 'revision', 'text'))}"
                page_id = _free(title.lower().replace(" ", "_"), taken)
                yield page_of({"id": page_id, "title": title, "content": content}, f"{path}: {title}")
        except (ElementTree.ParseError, OSError, EOFError) as error:
            raise UserError(f"{path} is no MediaWiki dump, or not a whole one: {error}.") from error


def _free(wanted: str, taken: set[str]) -> str:
    """The id, or the first of its numbered kind that is not taken; now it is."""
    numbered = (f"{wanted}_{number}" for number in count(2))
    found = next(page_id for page_id in chain([wanted], numbered) if page_id not in taken)
    taken.add(found)
    return found


def _unpack(raw: IO[bytes], path: Path) -> IO[bytes]:
    return bz2.open(raw) if path.suffix == ".bz2" else raw


def _pages_of_dump(file: IO[bytes]) -> Iterator[ElementTree.Element]:
    events = iter(ElementTree.iterparse(file, events=("start", "end")))
    _, root = next(events)
    for event, element in events:
        if event == "end" and element.tag.rpartition("}")[2] == "page":
            yield element
            root.clear()


def _text(element: ElementTree.Element, *names: str) -> str:
    found = element.find("/".join(f"{{*}}{name}" for name in names))
    return (found.text or "") if found is not None else ""
