"""Searches the pages of one corpus by title, in the ChromaDB collection `wiki_titles` on disk.

A build may be killed at any moment. If Chroma is killed during a write, its files may be unreadable or wrong
afterwards. So the vectors, which take most of the time, are first saved in a SQLite file, a transaction for each batch.
When all vectors exist, the collection is built from them in one step. Its directory gets its final name when it is
complete.
Each build has a new name, because Chroma caches open collections by path and would answer from the old collection. The
name has a digest of the origin of the index: its corpus, its embedder and the Chroma version. An index of another
origin is refused.
"""

import atexit
import hashlib
import importlib.metadata
import os
import shutil
import sqlite3
import tempfile
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from slimrl.errors import UserError, require
from slimrl.io.checksums import SUMS, find_damage, write_sums
from slimrl_search.retrieval.corpus import Corpus, StaleError
from slimrl_search.retrieval.embedding import Embedder

COLLECTION = "wiki_titles"
WHOLE, UNFINISHED = "index", "unfinished"
METADATA = "index_metadata.pickle"  # Chroma no longer changes the other files of a folder that has this file
BATCH = 1000  # titles embedded between two writes; an interruption loses at most one batch
NUM_RESULTS = 10
REMEMBERED = 4096  # cached queries: the rollouts of a group often send the same queries


class Bar(Protocol):
    """A progress bar."""

    def advance(self, count: int = 1) -> None:
        """Advance the bar by `count` parts."""


# Called with a description and the total number of parts, 0 if unknown; the bar is visible while the context is open.
Progress = Callable[[str, int], AbstractContextManager[Bar]]


class TitleIndex:
    """A complete, open index of the corpus. `search(query, num_results)` returns (page id, title) pairs.

    Raises:
        UserError: unless there is a complete index.
        StaleError: if the index is damaged, or has another corpus, embedder or Chroma version.
    """

    def __init__(self, directory: Path, corpus: Corpus, embedder: Embedder) -> None:
        command = corpus.command
        place = whole_in(directory)
        if place is None:
            raise UserError(f"there is no complete index in {directory}: run `{command}`.")
        _check(place, corpus, embedder)
        if damage := find_damage(place):  # Chroma answers wrongly from damaged vectors, or ends the process
            raise StaleError(f"the index in {place} is damaged: {damage}", command)
        self._embedder = embedder
        try:
            self._client = _client(place)
            self._collection = self._client.get_collection(COLLECTION, embedding_function=None)
            self._search("any title", 1)  # Chroma opens the vectors only for a search
            count = self._collection.count()
        except _chromadb().errors.ChromaError as error:
            raise StaleError(f"the index in {place} is damaged ({error})", command) from error
        if count != len(corpus):
            raise StaleError(f"the index in {place} has {count} of {len(corpus)} pages", command)
        # The cache belongs to the instance, because a decorator would keep every index alive.
        self.search = lru_cache(maxsize=REMEMBERED)(self._search)

    def close(self) -> None:
        """Close Chroma's files. Without this call, some dozens of files stay open until the process exits."""
        self._client.close()

    def _search(self, query: str, num_results: int = NUM_RESULTS) -> tuple[tuple[str, str], ...]:
        """Return the (page id, title) pairs of the pages with the nearest titles, nearest first."""
        found = self._collection.query(
            query_embeddings=self._embedder.embed([query]), n_results=num_results, include=["documents"]
        )
        return tuple(zip(found["ids"][0], found["documents"][0], strict=True))


def whole_in(directory: Path) -> Path | None:
    """Return the directory of the complete index, or None. The origin of the index is not checked."""
    return next(directory.glob(f"{WHOLE}-*"), None)


def build_index(directory: Path, corpus: Corpus, embedder: Embedder, progress: Progress, rebuild: bool = False) -> int:
    """Build the index of the corpus in `directory`, or finish an interrupted build. Return the number of newly embedded
    titles.

    With `rebuild`, an existing index is deleted first. Only one process at a time may call this function. Raises
    StaleError if the index has another origin, and UserError if the disk is full.
    """
    origin, added = _origin(corpus, embedder), 0
    vectors = directory / f"vectors-{origin}.sqlite"
    try:
        if rebuild and directory.exists():
            shutil.rmtree(directory)
        directory.mkdir(parents=True, exist_ok=True)
        if place := whole_in(directory):
            _check(place, corpus, embedder)
        else:
            added = _embed(vectors, corpus, embedder, progress)
            _fill(directory / f"{WHOLE}-{origin}-{uuid.uuid4().hex[:12]}", vectors, corpus, progress)
        for left in directory.glob("vectors-*"):
            left.unlink()
    except (OSError, sqlite3.DatabaseError, _chromadb().errors.ChromaError) as error:
        raise UserError(
            f"{directory} cannot take the index: {error}. If the disk is full, make room: the same command continues. "
            f"If a file is damaged, delete {directory}, and the index is built from the start."
        ) from error
    return added


def writable(index: Path) -> Path:
    """Return the index itself if it is writable, else a copy that is deleted when this process exits.

    Chroma must write to its database, even if the index is on a read-only file system, as in a container. Raises
    UserError if the disk is full, or the index cannot be read.
    """
    place = whole_in(index)
    if place is None or os.access(place, os.W_OK):
        return index
    copy = Path(tempfile.mkdtemp(prefix="slimrl-index-"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    try:
        shutil.copytree(place, copy / place.name)
    except OSError as error:
        raise UserError(
            f"the index in {index} cannot be written to, as Chroma wants, nor copied to {copy}: {error}. May this user "
            "read all of it? For more room raise DOCKER_TMP_LIMIT in the container (it counts towards "
            "DOCKER_MEMORY_LIMIT), or set TMPDIR to a larger disk."
        ) from error
    return copy


def _embed(vectors: Path, corpus: Corpus, embedder: Embedder, progress: Progress) -> int:
    """Write the missing vectors, a transaction for each batch of titles. Return the number of newly embedded titles."""
    with closing(sqlite3.connect(vectors)) as database, progress("embedding titles", len(corpus)) as bar:
        database.execute("CREATE TABLE IF NOT EXISTS vector (number INTEGER PRIMARY KEY, value BLOB NOT NULL)")
        there = int(database.execute("SELECT count(*) FROM vector").fetchone()[0])
        if there:
            bar.advance(there)
        titles = islice((title for _, title in corpus.titles()), there, None)
        while batch := list(islice(titles, BATCH)):
            rows = [(vector_D.tobytes(),) for vector_D in embedder.embed(batch)]
            with database:
                database.executemany("INSERT INTO vector (value) VALUES (?)", rows)
            bar.advance(len(batch))
    return len(corpus) - there


def _fill(place: Path, vectors: Path, corpus: Corpus, progress: Progress) -> None:
    """Make the collection of all titles, test it with one query, and give its directory the final name `place`."""
    unfinished = place.with_name(UNFINISHED)
    shutil.rmtree(unfinished, ignore_errors=True)
    titles = corpus.titles()
    with (
        progress("indexing titles", len(corpus)) as bar,
        _client(unfinished) as client,
        closing(sqlite3.connect(vectors)) as database,
    ):
        collection = client.create_collection(
            COLLECTION, configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
        )
        values = database.execute("SELECT value FROM vector ORDER BY number")
        while batch := list(islice(titles, BATCH)):
            ids, names = zip(*batch, strict=True)
            vectors_ND = np.stack([np.frombuffer(value, np.float32) for (value,) in islice(values, len(batch))])
            collection.add(list(ids), vectors_ND, [{"title": name} for name in names], list(names))
            bar.advance(len(ids))
    # Read the collection with a new client, because on a full disk Chroma may lose data without an error.
    with _client(unfinished) as client:
        found = client.get_collection(COLLECTION, embedding_function=None).query(vectors_ND[-1:], n_results=1)
    if not found["ids"][0]:
        raise UserError(f"Chroma finds nothing in what it wrote to {unfinished}. Is the disk full?")
    # Chroma may keep up to a thousand vectors in its database. Their folder then has no metadata file. It gets no
    # checksums, because its files still change.
    folders = [path.parent for path in unfinished.glob(f"*/{METADATA}")]
    write_sums(unfinished / SUMS, [path for folder in folders for path in sorted(folder.iterdir())])
    unfinished.rename(place)


def _origin(corpus: Corpus, embedder: Embedder) -> str:
    """Return a digest of the origin of an index: the fingerprints of its corpus and embedder, and Chroma's major
    version. Chroma can read files of the same major version."""
    chroma = importlib.metadata.version("chromadb").split(".")[0]
    return hashlib.sha256(f"{corpus.fingerprint} {embedder.fingerprint} {chroma}".encode()).hexdigest()[:16]


def _check(place: Path, corpus: Corpus, embedder: Embedder) -> None:
    if not place.name.startswith(f"{WHOLE}-{_origin(corpus, embedder)}-"):
        found = f"the index in {place} was made from another corpus, embedder or version of Chroma than the present one"
        raise StaleError(found, corpus.command)


def _client(directory: Path) -> Any:
    chromadb = _chromadb()
    return chromadb.PersistentClient(str(directory), settings=chromadb.Settings(anonymized_telemetry=False))


def _chromadb() -> Any:
    return require("chromadb", "search", "search")  # an extra, and slow to import, so it is imported only here
