"""Stores a corpus in one SQLite file, with the pages by id, so that a million pages need no memory.

`build_corpus` writes the file once from a stream of pages. The file has a temporary name until it is complete, and is
then only read. This module is independent of the source of the pages and of the search.
"""

import hashlib
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

from slimrl.errors import UserError
from slimrl_search.retrieval.pages import Page

SETUP = "uv run python scripts/setup_environment.py"
FORMAT = "1"  # the version of the file's schema; a file of another version must be rebuilt
BATCH = 1000  # pages between two reports of progress
SCHEMA = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE page (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, title TEXT NOT NULL, content TEXT NOT NULL);
"""


class StaleError(UserError):
    """The data on disk are damaged or do not match the settings. `found` describes the fault, and `command` rebuilds
    the data. The message contains both."""

    def __init__(self, found: str, command: str) -> None:
        super().__init__(f"{found}: run `{command}`, which builds it anew, or name another directory.")
        self.found = found


class Corpus:
    """A corpus in a complete file. Any number of threads and processes may read it.

    `fingerprint` is a digest of all pages in order, so corpora with equal fingerprints are equal. `command` is the
    command that builds the corpus, for error messages. Raises UserError if the file is missing, and StaleError if the
    file is damaged or of another format.
    """

    def __init__(self, path: Path, command: str = SETUP) -> None:
        if not path.is_file():
            raise UserError(f"there is no corpus at {path}: run `{command}`.")
        self.path, self.command = path, command
        self._database = _open(path)
        weakref.finalize(self, self._database.close)
        self._lock = threading.Lock()  # without it, threads would share prepared statements and mix their rows
        try:
            about = dict(self._database.execute("SELECT name, value FROM about"))
        except sqlite3.DatabaseError as error:
            raise StaleError(f"{path} is no corpus of slimrl's ({error})", command) from error
        if about.get("format") != FORMAT:
            raise StaleError(f"{path} has the format {about.get('format')}, not {FORMAT}", command)
        self.source, self.fingerprint, self._length = about["source"], about["fingerprint"], int(about["pages"])

    def __len__(self) -> int:
        return self._length

    def __contains__(self, page_id: object) -> bool:
        return isinstance(page_id, str) and self.page(page_id) is not None

    def page(self, page_id: str) -> Page | None:
        """Return the page with an id, or None if it does not exist."""
        with self._lock:
            row = self._database.execute("SELECT id, title, content FROM page WHERE id = ?", (page_id,)).fetchone()
        return None if row is None else Page(*row)

    def titles(self) -> Iterator[tuple[str, str]]:
        """Yield (id, title) of every page, in the order in which the pages were added."""
        with closing(_open(self.path)) as database:
            yield from database.execute("SELECT id, title FROM page ORDER BY number")

    def close(self) -> None:
        """Close the file."""
        self._database.close()


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, check_same_thread=False)


def build_corpus(path: Path, pages: Iterable[Page], source: str, on_page: Callable[[int], None]) -> Corpus:
    """Write the pages to a file and return the corpus. The file appears at `path` only when it is complete.

    `source` describes the origin of the pages, and is stored in the file. `on_page` is called with the number of pages
    that were written since its last call. Raises UserError if a page id occurs twice, there are no pages, or the disk
    is full.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.unlink(missing_ok=True)  # a killed process may have left it
    try:
        with closing(sqlite3.connect(unfinished)) as database:
            # A journal and flushes to disk are not needed, because after a crash the file is written again.
            database.executescript(f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; {SCHEMA}")
            about = {"format": FORMAT, "source": source, **_write(database, iter(pages), on_page)}
            database.executemany("INSERT INTO about VALUES (?, ?)", about.items())
            database.commit()
        unfinished.replace(path)
    except sqlite3.OperationalError as error:
        raise UserError(f"{path.parent} cannot take the corpus: {error}. Is the disk full?") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return Corpus(path)


def _write(database: sqlite3.Connection, pages: Iterator[Page], on_page: Callable[[int], None]) -> dict[str, str]:
    """Insert the pages. Return the fingerprint and the number of pages by name, for the table `about`."""
    digest, number = hashlib.sha256(), 0
    for number, page in enumerate(pages, start=1):
        row = page.id, page.title, page.content
        for text in row:
            data = text.encode()
            # The digest includes the length. Otherwise it would not change if characters moved between fields.
            digest.update(len(data).to_bytes(8, "big") + data)
        try:
            database.execute("INSERT INTO page VALUES (?, ?, ?, ?)", (number, *row))
        except sqlite3.IntegrityError as error:
            raise UserError(
                f"the page id {page.id!r} ({page.title}) comes twice in the corpus; an id must be unique."
            ) from error
        if number % BATCH == 0:
            on_page(BATCH)
    on_page(number % BATCH)
    if not number:
        raise UserError("the corpus has no pages.")
    return {"fingerprint": digest.hexdigest(), "pages": str(number)}
