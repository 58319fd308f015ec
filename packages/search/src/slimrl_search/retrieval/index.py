"""The module searches pages by title, in a ChromaDB collection on disk, `wiki_titles`, of one corpus.

A build may be killed at any moment, but Chroma may not: killed while writing, it leaves files that it cannot read, or
reads wrongly. So the vectors, which take most of the time, are appended batch by batch to a file that survives a kill
(`retrieval/vectors.py`). When all are there, the collection is made from them in one step, in a directory that is
renamed when complete. Each build gets a new name, because Chroma caches open collections by path and would answer from
the old one. The origin of the vectors is written beside them; an index of another corpus, embedder or Chroma version is
refused. The finished directory has checksums of all files except Chroma's database, in which Chroma counts how often it
was opened. `database.sha256` has a digest of the tables from which Chroma answers instead.
"""

import hashlib
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
from slimrl.io.checksums import SUMS, find_damage, write_sums
from slimrl.io.files import replace_file
from slimrl.io.regular_file import read_regular
from slimrl_search.retrieval.corpus import Corpus, StaleError
from slimrl_search.retrieval.embedding import DEFAULT, Embedder
from slimrl_search.retrieval.progress import Progress
from slimrl_search.retrieval.vectors import VectorFile

COLLECTION = "wiki_titles"
ABOUT, VECTORS = "about.json", "vectors.sqlite"
WHOLE, UNFINISHED = "titles", "titles.unfinished"
DATABASE, METADATA = "chroma.sqlite3", "index_metadata.pickle"
DIGEST = "database.sha256"
MAX_ABOUT_BYTES = 2**20
# The tables from which Chroma 1 answers: pages, vectors that are not in a file yet, and their relations.
TABLES = ("collections", "segments", "embeddings", "embedding_metadata", "embeddings_queue", "max_seq_id")
BATCH = 1000  # titles embedded between two writes; an interruption loses at most one batch
NUM_RESULTS = 10
REMEMBERED = 4096  # cached queries: the rollouts of a group often send the same ones


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of an index: fingerprints of corpus and embedder, and the major version of Chroma. Files stay readable
    within a major version."""

    corpus: str
    embedder: str
    chroma: str


class TitleIndex:
    """A complete, open index of the corpus. `search(query, num_results)` returns (page id, title) pairs.

    Raises:
        UserError: if the index is missing or incomplete.
        StaleError: if it is damaged, or of another origin.
    """

    def __init__(self, directory: Path, corpus: Corpus, embedder: Embedder) -> None:
        command = _command(corpus, embedder)
        _check(directory, _origin(corpus, embedder), command)
        place = whole_in(directory)
        if place is None:
            raise UserError(f"the index in {directory} is unfinished: it was interrupted. Go on with `{command}`.")
        if damage := _damage_of(place):
            raise StaleError(f"the index in {place} is damaged: {damage}", command)
        self._client, self._collection = _open_collection(place, len(corpus), command)
        self._embedder = embedder
        # The cache belongs to the instance, because a decorator would keep every index alive.
        self.search = lru_cache(maxsize=REMEMBERED)(self._search)

    def close(self) -> None:
        """Close Chroma's files, some dozens, which would otherwise stay open until the process exits."""
        self._client.close()

    def _search(self, query: str, num_results: int = NUM_RESULTS) -> tuple[tuple[str, str], ...]:
        """Return (page id, title) of the pages with the nearest titles, nearest first."""
        found = self._collection.query(
            query_embeddings=self._embedder.embed([query]), n_results=num_results, include=["documents"]
        )
        return tuple(zip(found["ids"][0], found["documents"][0], strict=True))


def whole_in(directory: Path) -> Path | None:
    """Return the directory of the complete index, of any origin, or None."""
    return next((path for path in sorted(directory.glob(f"{WHOLE}*")) if path.name != UNFINISHED), None)


def build_index(directory: Path, corpus: Corpus, embedder: Embedder, progress: Progress, rebuild: bool = False) -> int:
    """Build the index of the corpus in `directory`, or finish it, and return the number of newly embedded titles.

    With `rebuild`, an existing index is deleted first. Only one process at a time may call it. Raises StaleError if the
    index is of another origin, and UserError if the disk is full.
    """
    origin = _origin(corpus, embedder)
    try:
        if rebuild:
            _discard(directory)
        if (directory / ABOUT).is_file():
            _check(directory, origin, _command(corpus, embedder))
        else:
            directory.mkdir(parents=True, exist_ok=True)
            replace_file(directory / ABOUT, [json.dumps(asdict(origin), indent=1).encode()], "--data-dir")
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
    """Append the vectors of all titles that are missing from the file; return their number."""
    there, titles = len(vectors), (title for _, title in corpus.titles())
    with progress("embedding titles", len(corpus)) as bar:
        bar.advance(sum(1 for _ in islice(titles, there)))  # skip the titles embedded before an interruption
        while batch := list(islice(titles, BATCH)):
            vectors.append(embedder.embed(batch))
            bar.advance(len(batch))
    return len(corpus) - there


def _fill(directory: Path, corpus: Corpus, vectors: VectorFile, progress: Progress) -> None:
    """Make the collection of all titles, test it with one query from disk, and rename its directory to a final name."""
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
    # Read back by a new client: on a full disk Chroma may lose data without an error.
    with _client(directory / UNFINISHED) as client:
        found = client.get_collection(COLLECTION, embedding_function=None).query(vectors_ND[-1:], n_results=1)
    if not found["ids"][0]:
        raise UserError(f"Chroma finds nothing in what it wrote to {directory / UNFINISHED}. Is the disk full?")
    (directory / UNFINISHED / DIGEST).write_text(_database_digest(directory / UNFINISHED), encoding="utf-8")
    # Chroma keeps the vectors in the database until there are a thousand. Before that the vector files have no
    # metadata, and Chroma makes them again whenever it opens the collection.
    folders = [path.parent for path in (directory / UNFINISHED).glob(f"*/{METADATA}")]
    files = [directory / UNFINISHED / DIGEST, *(path for folder in folders for path in sorted(folder.iterdir()))]
    write_sums(directory / UNFINISHED / SUMS, files)
    (directory / UNFINISHED).rename(directory / f"{WHOLE}-{uuid.uuid4().hex[:12]}")


def _damage_of(place: Path) -> str:
    """Return a phrase that describes the damage of a finished index; empty if it is undamaged."""
    if damage := find_damage(place):
        return damage
    try:
        is_same = _database_digest(place).encode() == read_regular(place / DIGEST, MAX_ABOUT_BYTES)
    except sqlite3.Error as error:
        return f"{DATABASE}: {error}"
    return "" if is_same else f"{DATABASE} is not as written"


def _database_digest(place: Path) -> str:
    """Return a digest of the rows from which Chroma answers."""
    digest = hashlib.sha256()
    with closing(sqlite3.connect(f"{(place / DATABASE).resolve().as_uri()}?mode=ro", uri=True)) as database:
        for table in TABLES:
            digest.update(table.encode())
            for row in database.execute(f"SELECT * FROM {table} ORDER BY rowid"):
                digest.update(repr(row).encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


def _discard(directory: Path) -> None:
    """Delete an index. It is renamed first, so that a half-deleted index never counts as complete."""
    shutil.rmtree(directory / UNFINISHED, ignore_errors=True)
    if place := whole_in(directory):
        place.rename(directory / UNFINISHED)
        shutil.rmtree(directory / UNFINISHED)
    for name in (VECTORS, ABOUT):
        (directory / name).unlink(missing_ok=True)


def _command(corpus: Corpus, embedder: Embedder) -> str:
    """Return the command line that builds the index."""
    return corpus.command if embedder.name == DEFAULT else f"{corpus.command} --embedder {shlex.quote(embedder.name)}"


def _origin(corpus: Corpus, embedder: Embedder) -> Origin:
    return Origin(corpus.fingerprint, embedder.fingerprint, importlib.metadata.version("chromadb").split(".")[0])


def _check(directory: Path, origin: Origin, command: str) -> None:
    """Raise an error, with the command to run, unless the index in the directory is of this origin."""
    if not (directory / ABOUT).exists():
        raise UserError(f"there is no index in {directory}: run `{command}`.")
    try:
        found = Origin(**json.loads(read_regular(directory / ABOUT, MAX_ABOUT_BYTES)))
    except (ValueError, TypeError) as error:
        raise StaleError(f"{directory / ABOUT} is damaged ({error})", command) from error
    wanted, there = asdict(origin), asdict(found)
    if another := " and ".join(name for name in wanted if wanted[name] != there[name]):
        raise StaleError(f"the index in {directory} was made from another {another} than the present one", command)


def _open_collection(directory: Path, num_pages: int, command: str) -> tuple[Any, Any]:
    """Return Chroma's client and the collection. Raises StaleError if it is damaged or pages are missing."""
    try:
        with ExitStack() as closed_unless_opened:
            client = closed_unless_opened.enter_context(_client(directory))
            collection = client.get_collection(COLLECTION, embedding_function=None)
            count = collection.count()
            closed_unless_opened.pop_all()  # no error: the client stays open
    except _chromadb().errors.ChromaError as error:
        raise StaleError(f"the index in {directory} is damaged ({error})", command) from error
    if count != num_pages:
        raise StaleError(f"the index in {directory} has {count} of {num_pages} pages", command)
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
