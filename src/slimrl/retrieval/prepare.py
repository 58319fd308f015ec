"""A corpus and its index in one directory: made if they are not there, finished if they were interrupted."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from slimrl.errors import UserError
from slimrl.retrieval.corpus import Corpus, build_corpus
from slimrl.retrieval.embedding import Embedder
from slimrl.retrieval.encyclopedia import Encyclopedia
from slimrl.retrieval.index import REBUILD, TitleIndex, build_index
from slimrl.retrieval.pages import Page
from slimrl.retrieval.sources import read_pages

GENERATED = "generated"


class Bar(Protocol):
    def advance(self, count: int = 1) -> None: ...


# Shows a bar while something long is done: what is done, and of how many parts it consists, 0 if nobody knows.
Progress = Callable[[str, int], AbstractContextManager[Bar]]


@dataclass(frozen=True, slots=True)
class Source:
    """Where the pages of a corpus come from: `generated`, or what `read_pages` takes."""

    name: str
    num_pages: int = 1000  # of a generated one
    seed: int = 0

    @property
    def stamp(self) -> str:
        """What changes when the pages do, as far as can be told without reading them."""
        if self.name == GENERATED:
            return f"generated, {self.num_pages} pages, seed {self.seed}"
        path = Path(self.name).expanduser()
        if not path.exists():
            return f"the data set {self.name}"
        files = sorted(path.rglob("*.md")) if path.is_dir() else [path]
        facts = [file.stat() for file in files]
        size, newest = sum(fact.st_size for fact in facts), max((fact.st_mtime_ns for fact in facts), default=0)
        return f"{path.resolve()}, {len(files)} files, {size} bytes, {newest}"

    def pages(self) -> Iterator[Page]:
        if self.name == GENERATED:
            return Encyclopedia(self.num_pages, self.seed).pages()
        return read_pages(self.name, "`corpus`")


def prepare_corpus(directory: Path, source: Source, progress: Progress, rebuild: bool = False) -> Corpus:
    """The corpus in `directory`, which is written now if it is not there. One from elsewhere raises UserError, or is
    replaced if `rebuild` says so."""
    path = directory / "corpus.sqlite"
    if path.exists() and not rebuild:
        corpus = Corpus(path)
        if corpus.source != source.stamp:
            raise UserError(
                f"the corpus in {directory} was made from {corpus.source}, and now it is to be from {source.stamp}: "
                f"run `{REBUILD}`, or name another directory."
            )
        return corpus
    with progress("writing the corpus", source.num_pages if source.name == GENERATED else 0) as bar:
        return build_corpus(path, source.pages(), source.stamp, bar.advance)


def prepare_index(
    directory: Path, corpus: Corpus, embedder: Embedder, progress: Progress, rebuild: bool = False
) -> TitleIndex:
    """The index in `directory`, which is built or finished now where it is not whole."""
    with progress("indexing titles", len(corpus)) as bar:
        build_index(directory / "chroma", corpus, embedder, bar.advance, rebuild)
    return TitleIndex(directory / "chroma", corpus, embedder)
