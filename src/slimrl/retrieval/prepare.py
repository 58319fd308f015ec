"""A corpus and its index in one directory: made if they are not there, finished if they were interrupted."""

import hashlib
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from filelock import FileLock, Timeout

from slimrl.errors import UserError
from slimrl.retrieval.corpus import SETUP, Corpus, build_corpus
from slimrl.retrieval.embedding import Embedder
from slimrl.retrieval.encyclopedia import Encyclopedia
from slimrl.retrieval.index import TitleIndex, build_index, whole_in
from slimrl.retrieval.pages import Page
from slimrl.retrieval.progress import Progress
from slimrl.retrieval.sources import files_of, read_pages

GENERATED = "generated"
NUM_STAMPED = 20  # pages by which the code that made a generated corpus is told from another: two of each kind


@dataclass(frozen=True, slots=True)
class Source:
    """Where the pages of a corpus come from: `generated`, or what `read_pages` takes."""

    name: str
    num_pages: int = 1000  # of a generated one
    seed: int = 0

    @property
    def generator(self) -> str:
        """A digest of a generated corpus that changes with the code that generates it.

        The questions come from the present code, so the pages must come from the same.
        """
        return _short_hash(repr(list(islice(self.pages(), NUM_STAMPED))))

    @property
    def stamp(self) -> str:
        """What changes when the pages do, as far as can be told without reading them."""
        if self.name == GENERATED:
            return f"{self._description}, {self.generator}"
        path = Path(self.name).expanduser()
        if not path.exists():
            return f"the data set {self.name}"
        files = files_of(path)
        facts = [file.stat() for file in files]
        size, newest = sum(fact.st_size for fact in facts), max((fact.st_mtime_ns for fact in facts), default=0)
        stamp = f"{path.resolve()}, {len(files)} files, {size} bytes, {newest}"
        return f"{stamp}, {_digest(path, files)}" if path.is_dir() else stamp

    def command(self, directory: Path) -> str:
        """What makes the corpus and its index in the directory, on a command line."""
        generated = ["--num-pages", str(self.num_pages), "--seed", str(self.seed)]
        what = generated if self.name == GENERATED else ["--corpus", self.name]
        return f"{SETUP} {shlex.join([*what, '--data-dir', str(directory)])}"

    def difference(self, stamp: str) -> str:
        """What a corpus with another stamp was made from, and what it is to be made from, in words."""
        if self.name == GENERATED and stamp.startswith(f"{self._description}, "):
            return "by an earlier version of slimrl, and this one writes other pages"
        return f"from {stamp}, and now it is to be from {self.stamp}"

    @property
    def _description(self) -> str:
        return f"{GENERATED}, {self.num_pages} pages, seed {self.seed}"

    def pages(self) -> Iterator[Page]:
        if self.name == GENERATED:
            return Encyclopedia(self.num_pages, self.seed).pages()
        return read_pages(self.name, "`corpus`")


def _digest(folder: Path, files: Sequence[Path]) -> str:
    """A digest of the files' names, which are the pages' ids, with their sizes and times of change."""
    facts = ((file.relative_to(folder).as_posix(), file.stat()) for file in files)
    return _short_hash(repr([(name, fact.st_size, fact.st_mtime_ns) for name, fact in facts]))


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:8]


def prepare_corpus(directory: Path, source: Source, progress: Progress, rebuild: bool = False) -> Corpus:
    """The corpus in `directory`, which is written now if it is not there. One from elsewhere raises UserError, or is
    replaced if `rebuild` says so."""
    path = directory / "corpus.sqlite"
    if rebuild or not path.exists():
        with _hold_lock(directory, progress):
            if rebuild or not path.exists():  # another process may have written it while this one waited
                with progress("writing the corpus", source.num_pages if source.name == GENERATED else 0) as bar:
                    build_corpus(path, source.pages(), source.stamp, bar.advance)
    corpus = Corpus(path, source.command(directory))
    if corpus.source != source.stamp:
        raise UserError(
            f"the corpus in {directory} was made {source.difference(corpus.source)}: "
            f"run `{corpus.command} --rebuild`, or name another directory."
        )
    return corpus


def prepare_index(
    directory: Path, corpus: Corpus, embedder: Embedder, progress: Progress, rebuild: bool = False
) -> TitleIndex:
    """The index in `directory`, which is built or finished now where it is not whole."""
    place = directory / "chroma"
    if rebuild or not whole_in(place):
        with _hold_lock(directory, progress):
            build_index(place, corpus, embedder, progress, rebuild)
    return TitleIndex(place, corpus, embedder)


@contextmanager
def _hold_lock(directory: Path, progress: Progress) -> Iterator[None]:
    """No other process builds in the directory meanwhile. A process that dies lets go."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = FileLock(directory / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            with progress(f"waiting for another process that builds in {directory}", 0):
                lock.acquire()
    except OSError as error:
        raise UserError(f"{directory} cannot be written to ({error}): name another directory.") from error
    try:
        yield
    finally:
        lock.release()
