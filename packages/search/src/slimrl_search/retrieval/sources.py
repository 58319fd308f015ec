"""Reads pages and questions from a data set on the Hub, a file of rows, a MediaWiki dump, or a folder.

All readers are streams. Nothing is downloaded except a Hub data set that a setting names.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slimrl.errors import UserError
from slimrl.io.regular_file import read_regular
from slimrl.io.rows import MAX_ROW_BYTES, file_rows, hub_rows
from slimrl_search.retrieval.dump import read_dump
from slimrl_search.retrieval.pages import Page, Question, page_of, question_of
from slimrl_search.retrieval.sections import sections_of

ROWS = (".jsonl", ".parquet")
MARKDOWN = ".md"
DUMP = re.compile(r".*\.xml(-p\d+p\d+)?(\.bz2)?")  # a part of a large dump has its range of pages in its name


def read_pages(source: str, check: str) -> Iterator[Page]:
    """Yield the pages of a source. The source is one of four: a `.jsonl` or `.parquet` file with rows of `id`, `title`
    and `content`; a MediaWiki dump, `.xml` or `.xml.bz2`; a folder of these files and of `.md` files; a data set on the
    Hub, `owner/name`, from which the split `train` is read.

    `check` names the setting that contains the source, for messages. Raises UserError if the source cannot be read.
    """
    path = Path(os.path.expanduser(source))
    files = files_of(path)
    if not files:
        raise UserError(
            f"there is no file of pages in {path}: neither `.md` nor `.jsonl`, `.parquet`, `.xml` or `.xml.bz2`; check "
            f"{check}."
        )
    taken: set[str] = set()  # shared by the parts of a dump: ids must be unique in the corpus
    for file in files:
        if DUMP.fullmatch(file.name):
            yield from read_dump(file, check, taken)
        elif path.is_dir() and file.suffix == MARKDOWN:
            yield _markdown(file, path)
        else:
            for row, where in _rows(str(file) if path.is_dir() else source, check):
                yield page_of(row, where)


def files_of(path: Path) -> list[Path]:
    """Return the files of a source, in order: the file itself, or all files in the folder that can contain pages."""
    if not path.is_dir():
        return [path]
    return sorted(
        file
        for file in path.rglob("*")
        if file.is_file() and (file.suffix in (*ROWS, MARKDOWN) or DUMP.fullmatch(file.name))
    )


def read_questions(source: str, check: str) -> Iterator[Question]:
    """Yield the questions of a `.jsonl` or `.parquet` file, or of a data set on the Hub. `question_of` defines the
    fields of a row."""
    for row, where in _rows(source, check):
        yield question_of(row, where)


def _rows(source: str, check: str) -> Iterator[tuple[Any, str]]:
    """Yield the rows of a file or Hub data set, each with a text that names its position. Raises UserError for other
    sources."""
    path = Path(os.path.expanduser(source))
    if source.endswith(ROWS):
        return file_rows(path, check)
    if path.exists() or source.count("/") != 1 or source.startswith((".", "/", "~")):
        raise UserError(
            f"`{source}` is neither a `.jsonl` or `.parquet` file, nor a folder, a MediaWiki dump (`.xml`, "
            f"`.xml.bz2`), or a data set on the Hub (`owner/name`); check {check}."
        )
    return hub_rows(source, "train", check)


def _markdown(path: Path, folder: Path) -> Page:
    """Return the page in a markdown file. Its id is the path within the folder without the suffix. Its title is the
    first heading, or the id."""
    try:
        content = read_regular(path, MAX_ROW_BYTES).decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text ({error}).") from error
    page_id = path.relative_to(folder).with_suffix("").as_posix()
    title = next((section.name for section in sections_of(content) if section.name), page_id)
    return page_of({"id": page_id, "title": title, "content": content}, str(path))
