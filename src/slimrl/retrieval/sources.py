"""Where pages and questions come from: a data set on the Hub, a file of rows, a folder of markdown, a MediaWiki dump.

Every reader is a stream. Nothing is downloaded but from a Hub data set that was asked for by name.
"""

import bz2
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from slimrl.errors import UserError
from slimrl.retrieval.pages import Page, Question, page_of, question_of
from slimrl.retrieval.wikitext import markdown_of
from slimrl.rows import file_rows, hub_rows

FILES = (".jsonl", ".parquet")
DUMPS = (".xml", ".xml.bz2")


def read_pages(source: str, check: str, split: str = "train") -> Iterator[Page]:
    """The pages of a `.jsonl` or `.parquet` file (rows with `id`, `title`, `content`), of a folder of `.md` files, of a
    MediaWiki `.xml` or `.xml.bz2` dump, or of a data set on the Hub, `owner/name`.

    `check` names the setting that holds the source, for messages. Raises UserError."""
    path = Path(source).expanduser()
    if path.is_dir():
        yield from _folder(path)
    elif source.endswith(DUMPS):
        yield from _dump(path, check)
    else:
        for row, where in _rows(source, check, split):
            yield page_of(row, where)


def read_questions(source: str, check: str, split: str = "train") -> Iterator[Question]:
    """The questions of a `.jsonl` or `.parquet` file, or of a data set on the Hub: see `question_of`."""
    for row, where in _rows(source, check, split):
        yield question_of(row, where)


def _rows(source: str, check: str, split: str) -> Iterator[tuple[Any, str]]:
    path = Path(source).expanduser()
    if source.endswith(FILES):
        return file_rows(path, check)
    if path.exists() or source.count("/") != 1 or source.startswith((".", "/", "~")):
        raise UserError(
            f"`{source}` is neither a `.jsonl` or `.parquet` file, nor a folder of markdown, a MediaWiki dump (`.xml`, "
            f"`.xml.bz2`), or a data set on the Hub (`owner/name`); check {check}."
        )
    return hub_rows(source, split, check)


def _folder(folder: Path) -> Iterator[Page]:
    """A page for every `.md` file; its id is the path without the suffix, its title the first heading, or the id."""
    paths = sorted(folder.rglob("*.md"))
    if not paths:
        raise UserError(f"there is no `.md` file in {folder}.")
    for path in paths:
        try:
            content = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise UserError(f"{path} is not UTF-8 text ({error}).") from error
        page_id = path.relative_to(folder).with_suffix("").as_posix()
        first = next((line for line in content.splitlines() if line.startswith("#")), "")
        yield page_of({"id": page_id, "title": first.lstrip("#").strip() or page_id, "content": content}, str(path))


def _dump(path: Path, check: str) -> Iterator[Page]:
    """The articles of a MediaWiki dump: its first name space, without redirects."""
    if not path.is_file():
        raise UserError(f"cannot read {path}: no such file; check {check}.")
    with path.open("rb") as raw, _unpacked(raw, path) as file:
        try:
            for element in _pages_of_dump(file):
                title = _text(element, "title")
                if _text(element, "ns") != "0" or element.find("{*}redirect") is not None:
                    continue
                content = f"# {title}\n\n{markdown_of(_text(element, 'revision', 'text'))}"
                yield page_of(
                    {"id": title.lower().replace(" ", "_"), "title": title, "content": content}, f"{path}: {title}"
                )
        except (ElementTree.ParseError, OSError, EOFError) as error:
            raise UserError(f"{path} is no MediaWiki dump, or not a whole one: {error}.") from error


def _unpacked(raw: IO[bytes], path: Path) -> IO[bytes]:
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
