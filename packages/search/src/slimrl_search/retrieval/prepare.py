"""Prepares a corpus and its index in one directory. Missing parts are built, and interrupted builds are continued."""

import hashlib
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from slimrl.errors import UserError
from slimrl.io.cache import cache_root, say
from slimrl.io.files import explain_write_errors
from slimrl.io.locks import hold_lock
from slimrl_search.retrieval.corpus import SETUP, Corpus, StaleError, build_corpus
from slimrl_search.retrieval.dump import READER
from slimrl_search.retrieval.embedding import Embedder
from slimrl_search.retrieval.encyclopedia import Encyclopedia
from slimrl_search.retrieval.index import Progress, TitleIndex, build_index, whole_in
from slimrl_search.retrieval.pages import Page
from slimrl_search.retrieval.sources import files_of, read_pages

CORPUS, INDEX = "corpus.sqlite", ".chroma_db"  # in the directory of a corpus
GENERATED = "generated"
DESCRIPTION = re.compile(rf"{GENERATED}, (\d+) pages, seed (-?\d+), ")  # the first part of a generated corpus's stamp
NUM_STAMPED = 20  # a digest of this many pages, two cycles of all kinds, identifies the generating code


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a corpus: `name` is `generated`, or a source that `read_pages` accepts."""

    name: str
    num_pages: int = 1000  # of a generated corpus
    seed: int = 0

    @property
    def generator(self) -> str:
        """A digest of the first generated pages. It changes if the code for these pages changes.

        Questions are not stored: the current code generates them. So the stored pages must be from the same code.
        """
        return _short_hash(repr(list(islice(Encyclopedia(self.num_pages, self.seed).pages(), NUM_STAMPED))))

    @property
    def stamp(self) -> str:
        """A text that identifies the pages. It changes with the settings, the code or the files. To compute it, no file
        is read."""
        if self.name == GENERATED:
            return f"{GENERATED}, {self.num_pages} pages, seed {self.seed}, {self.generator}"
        path = Path(os.path.expanduser(self.name))
        if not path.exists():
            return f"the data set {self.name}"
        facts = [(os.path.relpath(file, path), file.stat()) for file in files_of(path)]
        size = sum(fact.st_size for _, fact in facts)
        digest = _short_hash(repr([READER, *((name, fact.st_size, fact.st_mtime_ns) for name, fact in facts)]))
        return f"{path.resolve()}, {len(facts)} files, {size} bytes, {digest}"

    def command(self, directory: Path) -> str:
        """Return the command line that builds the corpus and its index in a directory."""
        generated = ["--num-pages", str(self.num_pages), "--seed", str(self.seed)]
        what = generated if self.name == GENERATED else ["--corpus", self.name]
        return f"{SETUP} {shlex.join([*what, '--data-dir', str(directory)])}"

    def pages(self) -> Iterator[Page]:
        """Yield the pages of the source."""
        if self.name == GENERATED:
            return Encyclopedia(self.num_pages, self.seed).pages()
        return read_pages(self.name, "`corpus`")


def directory_of(source: Source, data_dir: str) -> Path:
    """Return the directory of a corpus and its index: `data_dir`, or a directory in the cache if `data_dir` is
    empty."""
    if data_dir:
        return Path(os.path.expanduser(data_dir))
    if source.name == GENERATED:
        # `generator` changes with the code that makes the pages, so other pages are stored in another directory.
        return cache_root() / "wiki" / f"{GENERATED}-{source.num_pages}-{source.seed}-{source.generator}"
    path = Path(os.path.expanduser(source.name))
    digest = hashlib.sha256(str(path.resolve() if path.exists() else source.name).encode()).hexdigest()[:12]
    return cache_root() / "wiki" / f"{path.stem}-{digest}"


def find_generated(directory: Path) -> Source | None:
    """Return the source of the generated corpus in a directory. Return None without a corpus, or if it was not
    generated."""
    try:
        found = DESCRIPTION.match(Corpus(directory / CORPUS).source)
    except UserError:
        return None
    return found and Source(GENERATED, int(found[1]), int(found[2]))


def prepare_corpus(directory: Path, source: Source, progress: Progress, rebuild: bool = False) -> Corpus:
    """Return the corpus in `directory`. The corpus is written first if it is missing, or if `rebuild` is set.

    Raises:
        StaleError: if the directory has a corpus from another source, or a damaged corpus.
        UserError: if the directory is not writable.
    """
    path = directory / CORPUS
    if rebuild or not path.exists():
        pages = source.pages()
        first = [*islice(pages, 1)]  # read before anything is created: an unreadable source leaves no directory
        with _hold_lock(directory):
            if rebuild or not path.exists():  # another process may have written it while this one waited
                with progress("writing the corpus", source.num_pages if source.name == GENERATED else 0) as bar:
                    build_corpus(path, chain(first, pages), source.stamp, bar.advance)
    corpus = Corpus(path, source.command(directory))
    if corpus.source != source.stamp:
        was = f"made from {corpus.source}, and now it is to be from {source.stamp}"
        raise StaleError(f"the corpus in {directory} was {was}", corpus.command)
    return corpus


def prepare_index(
    directory: Path, corpus: Corpus, embedder: Embedder, progress: Progress, rebuild: bool = False
) -> TitleIndex:
    """Return the index in `directory`. An incomplete index is built or finished first. Raises StaleError if the index
    is damaged or of another origin, and UserError if it cannot be built."""
    place = directory / INDEX
    if rebuild or not whole_in(place):  # a complete index is opened without the lock, which needs a writable directory
        with _hold_lock(directory):
            build_index(place, corpus, embedder, progress, rebuild)
    return TitleIndex(place, corpus, embedder)


@contextmanager
def _hold_lock(directory: Path) -> Iterator[None]:
    with explain_write_errors(directory, "--data-dir"):
        directory.mkdir(parents=True, exist_ok=True)
        with hold_lock(directory / ".lock", f"building in {directory}", say):
            yield


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:8]
