"""Search for pages by title: a ChromaDB collection on disk, `wiki_titles`, of the titles of one corpus.

Building may be killed at any moment. Chroma's files may not: killed while it writes them, it leaves some that it cannot
read, or reads wrongly. So the vectors, which take the time, go into a file that stands it, batch by batch
(`retrieval/vectors.py`). When all are there the collection is made of them in one go, in a directory that gets its name
when it is whole, another for every build: Chroma keeps what it has open by path, and would answer from what was there
before. What the vectors came from is written beside them, so that an index of another corpus, embedder or version of
Chroma is noticed before it answers.
"""

import importlib.metadata
import json
import shlex
import shutil
import sqlite3
import uuid
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from slimrl.errors import UserError, install_hint
from slimrl.retrieval.corpus import Corpus
from slimrl.retrieval.embedding import DEFAULT, Embedder
from slimrl.retrieval.progress import Progress
from slimrl.retrieval.vectors import VectorFile

COLLECTION = "wiki_titles"
ABOUT, VECTORS = "about.json", "vectors.sqlite"
WHOLE, UNFINISHED = "titles", "titles.unfinished"
BATCH = 1000  # titles that are embedded together: what an interruption loses
NUM_RESULTS = 10
REMEMBERED = 4096  # queries whose results are kept: a group's rollouts ask alike


@dataclass(frozen=True, slots=True)
class Origin:
    """What an index was made from. `chroma` is the major version: within one, files stay readable."""

    corpus: str
    embedder: str
    chroma: str

    def differences(self, other: "Origin") -> list[str]:
        """The names of what differs."""
        mine, others = asdict(self), asdict(other)
        return [name for name in mine if mine[name] != others[name]]


class TitleIndex:
    """A whole index of the corpus, opened for searching. Raises UserError if it is missing, unfinished, stale or
    damaged."""

    def __init__(self, directory: Path, corpus: Corpus, embedder: Embedder) -> None:
        command = _command(corpus, embedder)
        _check(directory, _origin(corpus, embedder), command)
        place = whole_in(directory)
        if place is None:
            raise UserError(f"the index in {directory} is unfinished: it was interrupted. Go on with `{command}`.")
        self._client, self._collection = _open_collection(place, len(corpus), command)
        self._embedder = embedder
        self.search = lru_cache(maxsize=REMEMBERED)(self._search)

    def close(self) -> None:
        """Let go of Chroma's files, some dozens of them, which it would keep open to the end of the process."""
        self._client.close()

    def _search(self, query: str, num_results: int = NUM_RESULTS) -> tuple[tuple[str, str], ...]:
        """(page id, title) of the pages with the nearest titles, nearest first."""
        found = self._collection.query(
            query_embeddings=self._embedder.embed([query]), n_results=num_results, include=["documents"]
        )
        return tuple(zip(found["ids"][0], found["documents"][0], strict=True))


def whole_in(directory: Path) -> Path | None:
    """The index that was built there to its end, of whatever corpus, if one was."""
    return next((path for path in sorted(directory.glob(f"{WHOLE}*")) if path.name != UNFINISHED), None)


def build_index(directory: Path, corpus: Corpus, embedder: Embedder, progress: Progress, rebuild: bool = False) -> int:
    """Make the index of the corpus in `directory`, or finish it, and return how many titles were embedded.

    A stale index raises UserError, or is thrown away if `rebuild` says so. For one process at a time.
    """
    origin = _origin(corpus, embedder)
    try:
        if rebuild:
            _discard(directory)
        if (directory / ABOUT).is_file():
            _check(directory, origin, _command(corpus, embedder))
        else:
            directory.mkdir(parents=True, exist_ok=True)
            _write_about(directory, origin)
        if whole_in(directory):
            return 0
        with closing(VectorFile(directory / VECTORS)) as vectors:
            added = _embed(corpus, embedder, vectors, progress)
            _fill(directory, corpus, vectors, progress)
        (directory / VECTORS).unlink()
    except (OSError, sqlite3.Error, _chromadb().errors.ChromaError) as error:
        raise UserError(
            f"{directory} cannot take the index: {error}. Is the disk full? What was done is kept: the same command "
            "goes on."
        ) from error
    return added


def _embed(corpus: Corpus, embedder: Embedder, vectors: VectorFile, progress: Progress) -> int:
    there, titles = len(vectors), (title for _, title in corpus.titles())
    with progress("embedding titles", len(corpus)) as bar:
        bar.advance(sum(1 for _ in islice(titles, there)))
        while batch := list(islice(titles, BATCH)):
            vectors.append(embedder.embed(batch))
            bar.advance(len(batch))
    return len(corpus) - there


def _fill(directory: Path, corpus: Corpus, vectors: VectorFile, progress: Progress) -> None:
    """The collection of all titles, and a second look at it, from the disk, before it counts as whole."""
    shutil.rmtree(directory / UNFINISHED, ignore_errors=True)
    titles = corpus.titles()
    with progress("indexing titles", len(corpus)) as bar, _client(directory / UNFINISHED) as client:
        collection = client.create_collection(
            COLLECTION, configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
        )
        for vectors_ND in vectors.batches():
            ids, names = zip(*islice(titles, len(vectors_ND)), strict=True)
            collection.add(list(ids), vectors_ND, [{"title": name} for name in names], list(names))
            bar.advance(len(ids))
    with _client(directory / UNFINISHED) as client:
        found = client.get_collection(COLLECTION, embedding_function=None).query(vectors_ND[-1:], n_results=1)
    if not found["ids"][0]:
        raise UserError(f"Chroma finds nothing in what it wrote to {directory / UNFINISHED}. Is the disk full?")
    (directory / UNFINISHED).rename(directory / f"{WHOLE}-{uuid.uuid4().hex[:12]}")


def _discard(directory: Path) -> None:
    """Throw an index away, so that one half of it is never taken for the whole."""
    shutil.rmtree(directory / UNFINISHED, ignore_errors=True)
    if place := whole_in(directory):
        place.rename(directory / UNFINISHED)
        shutil.rmtree(directory / UNFINISHED)
    for name in (VECTORS, ABOUT):
        (directory / name).unlink(missing_ok=True)


def _command(corpus: Corpus, embedder: Embedder) -> str:
    """What makes the index, on a command line."""
    return corpus.command if embedder.name == DEFAULT else f"{corpus.command} --embedder {shlex.quote(embedder.name)}"


def _origin(corpus: Corpus, embedder: Embedder) -> Origin:
    return Origin(corpus.fingerprint, embedder.fingerprint, importlib.metadata.version("chromadb").split(".")[0])


def _write_about(directory: Path, origin: Origin) -> None:
    unfinished = directory / (ABOUT + ".unfinished")
    unfinished.write_text(json.dumps(asdict(origin), indent=1), encoding="utf-8")
    unfinished.replace(directory / ABOUT)


def _check(directory: Path, origin: Origin, command: str) -> None:
    """Raise UserError, which tells the `command` to run, unless the index in the directory was made from `origin`."""
    try:
        found = Origin(**json.loads((directory / ABOUT).read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise UserError(f"there is no index in {directory}: run `{command}`.") from None
    except (ValueError, TypeError) as error:
        raise UserError(f"{directory / ABOUT} is damaged ({error}): run `{command} --rebuild`.") from error
    if differing := found.differences(origin):
        raise UserError(
            f"the index in {directory} was made from another {' and '.join(differing)} than the present one: run "
            f"`{command} --rebuild`, or name the ones it was made from."
        )


def _open_collection(directory: Path, num_pages: int, command: str) -> tuple[Any, Any]:
    """The client and its collection."""
    try:
        with ExitStack() as closed_unless_opened:
            client = closed_unless_opened.enter_context(_client(directory))
            collection = client.get_collection(COLLECTION, embedding_function=None)
            count = collection.count()
            closed_unless_opened.pop_all()
    except _chromadb().errors.ChromaError as error:
        raise UserError(f"the index in {directory} is damaged ({error}): run `{command} --rebuild`.") from error
    if count != num_pages:
        raise UserError(f"the index in {directory} has {count} of {num_pages} pages: run `{command} --rebuild`.")
    return client, collection


def _client(directory: Path) -> Any:
    chromadb = _chromadb()
    return chromadb.PersistentClient(str(directory), settings=chromadb.Settings(anonymized_telemetry=False))


def _chromadb() -> Any:
    try:
        import chromadb  # an extra, and slow to import: only here
    except ImportError as error:
        raise UserError(f"search needs the extra [search] ({error}): {install_hint('search')}.") from error
    return chromadb
