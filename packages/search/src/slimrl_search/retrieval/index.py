"""Searches the pages of one corpus by title, in the ChromaDB collection `wiki_titles` on disk.

A build may be killed at any moment. If Chroma is killed during a write, its files may be unreadable or wrong
afterwards. So the vectors, which take most of the time, are first saved in batches, in files with digests. When all
batches exist, the collection is built from them in one step. Its directory gets its final name when it is complete.
Each build has a new name, because Chroma caches open collections by path and would answer from the old collection. A
file beside the vectors stores the origin of the index: its corpus, its embedder and the Chroma version. An index of
another origin is refused.
"""

import atexit
import hashlib
import importlib.metadata
import io
import json
import os
import shlex
import shutil
import sqlite3
import tempfile
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from slimrl.errors import UserError, require
from slimrl.io.checksums import SUMS, find_damage, write_sums
from slimrl.io.files import replace_file
from slimrl.io.regular_file import read_regular
from slimrl_search.retrieval.corpus import Corpus, StaleError
from slimrl_search.retrieval.embedding import DEFAULT, Embedder

COLLECTION = "wiki_titles"
ABOUT, VECTORS = "about.json", "vectors"
WHOLE, UNFINISHED = "titles", "titles.unfinished"
DATABASE = "chroma.sqlite3"
METADATA = "index_metadata.pickle"  # Chroma no longer changes the other files of a folder that has this file
MAX_ABOUT_BYTES = 2**20
MAX_BATCH_BYTES = 2**28
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
        UserError: if the index is missing or incomplete.
        StaleError: if the index is damaged, or has another corpus, embedder or Chroma version.
    """

    def __init__(self, directory: Path, corpus: Corpus, embedder: Embedder) -> None:
        command = _command(corpus, embedder)
        _check(directory, _origin(corpus, embedder), command)
        place = whole_in(directory)
        if place is None:
            raise UserError(f"the index in {directory} is unfinished: it was interrupted. Go on with `{command}`.")
        if damage := find_damage(place):  # Chroma answers wrongly from damaged vectors, or ends the process
            raise StaleError(f"the index in {place} is damaged: {damage}", command)
        self._embedder = embedder
        try:
            with ExitStack() as closed_unless_opened:
                self._client = closed_unless_opened.enter_context(_client(place))
                self._collection = self._client.get_collection(COLLECTION, embedding_function=None)
                self._search("any title", 1)  # Chroma opens the vectors only for a search
                if (count := self._collection.count()) != len(corpus):
                    raise StaleError(f"the index in {place} has {count} of {len(corpus)} pages", command)
                closed_unless_opened.pop_all()
        except _chromadb().errors.ChromaError as error:
            raise StaleError(f"the index in {place} is damaged ({error})", command) from error
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
    return next((path for path in sorted(directory.glob(f"{WHOLE}*")) if path.name != UNFINISHED), None)


def build_index(directory: Path, corpus: Corpus, embedder: Embedder, progress: Progress, rebuild: bool = False) -> int:
    """Build the index of the corpus in `directory`, or finish an interrupted build. Return the number of newly embedded
    titles.

    With `rebuild`, an existing index is deleted first. Only one process at a time may call this function. Raises
    StaleError if the index has another origin, and UserError if the disk is full.
    """
    origin = _origin(corpus, embedder)
    try:
        if rebuild:
            _discard(directory)
        if (directory / ABOUT).is_file():
            _check(directory, origin, _command(corpus, embedder))
        else:
            directory.mkdir(parents=True, exist_ok=True)
            replace_file(directory / ABOUT, [json.dumps(origin, indent=1).encode()], "--data-dir")
        vectors = directory / VECTORS
        if whole_in(directory):
            shutil.rmtree(vectors, ignore_errors=True)  # left by a build that was killed after its last step
            return 0
        vectors.mkdir(exist_ok=True)
        added = _embed(vectors, corpus, embedder, progress)
        _fill(directory, corpus, progress)
        shutil.rmtree(vectors)
    except (OSError, _chromadb().errors.ChromaError) as error:
        raise UserError(
            f"{directory} cannot take the index: {error}. Is the disk full? What was done is kept: the same command "
            "goes on."
        ) from error
    return added


def writable(index: Path) -> Path:
    """Return the index itself if it is writable, else a copy that is deleted when this process exits.

    Chroma must write to its database, even if the index is on a read-only file system, as in a container. So the
    database is copied without its free pages, which takes 0.6 KB a title. The files with vectors are only linked, since
    Chroma does not write to them. Raises UserError if the disk is full, or the index cannot be read.
    """
    place = whole_in(index)
    if place is None or os.access(place, os.W_OK):
        return index
    copy = Path(tempfile.mkdtemp(prefix="slimrl-index-"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    titles = copy / place.name
    try:
        titles.mkdir()
        shutil.copy(index / ABOUT, copy / ABOUT)
        for other in place.iterdir():
            if other.name != DATABASE:
                (titles / other.name).symlink_to(other.resolve())
        with closing(sqlite3.connect(f"{(place / DATABASE).resolve().as_uri()}?mode=ro", uri=True)) as database:
            database.execute("VACUUM INTO ?", (str(titles / DATABASE),))
    except (OSError, sqlite3.Error) as error:
        raise UserError(
            f"the index in {index} cannot be written to, as Chroma wants, nor copied to {copy}: {error}. May this user "
            "read all of it? For more room raise DOCKER_TMP_LIMIT in the container (it counts towards "
            "DOCKER_MEMORY_LIMIT), or set TMPDIR to a larger disk."
        ) from error
    return copy


def _embed(vectors: Path, corpus: Corpus, embedder: Embedder, progress: Progress) -> int:
    """Write the missing vectors, a file for each batch of titles. Return the number of newly embedded titles."""
    titles, number, there = (title for _, title in corpus.titles()), 0, 0
    with progress("embedding titles", len(corpus)) as bar:
        while batch := list(islice(titles, BATCH)):
            path = vectors / f"{number:06d}.npy"
            if _load(path, len(batch)) is None:
                _save(path, embedder.embed(batch))
            else:
                there += len(batch)
            number += 1
            bar.advance(len(batch))
    return len(corpus) - there


def _save(path: Path, vectors_ND: np.ndarray) -> None:
    """Write the vectors of a batch, followed by a digest."""
    buffer = io.BytesIO()
    np.save(buffer, vectors_ND)
    content = buffer.getvalue()
    replace_file(path, [content, hashlib.sha256(content).digest()], "--data-dir")


def _load(path: Path, num: int) -> np.ndarray | None:
    """Return the vectors (N, D) of a batch; None if the file is missing or damaged, or does not have `num` vectors."""
    content = read_regular(path, MAX_BATCH_BYTES) if path.is_file() else b""
    content, digest = content[:-32], content[-32:]
    if hashlib.sha256(content).digest() != digest:
        return None
    vectors_ND: np.ndarray = np.load(io.BytesIO(content))
    return vectors_ND if len(vectors_ND) == num else None


def _fill(directory: Path, corpus: Corpus, progress: Progress) -> None:
    """Make the collection of all titles, test it with one query, and give its directory the final name."""
    shutil.rmtree(directory / UNFINISHED, ignore_errors=True)
    titles = corpus.titles()
    with progress("indexing titles", len(corpus)) as bar, _client(directory / UNFINISHED) as client:
        collection = client.create_collection(
            COLLECTION, configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
        )
        for number in range(-(-len(corpus) // BATCH)):
            ids, names = zip(*islice(titles, BATCH), strict=True)
            loaded_ND = _load(directory / VECTORS / f"{number:06d}.npy", len(ids))
            if loaded_ND is None:
                raise OSError(f"batch {number} of its vectors is not as it was written")
            vectors_ND = loaded_ND
            collection.add(list(ids), vectors_ND, [{"title": name} for name in names], list(names))
            bar.advance(len(ids))
    # Read the collection with a new client, because on a full disk Chroma may lose data without an error.
    with _client(directory / UNFINISHED) as client:
        found = client.get_collection(COLLECTION, embedding_function=None).query(vectors_ND[-1:], n_results=1)
    if not found["ids"][0]:
        raise UserError(f"Chroma finds nothing in what it wrote to {directory / UNFINISHED}. Is the disk full?")
    # Chroma may keep up to a thousand vectors in its database. Their folder then has no metadata file. It gets no
    # checksums, because its files still change.
    folders = [path.parent for path in (directory / UNFINISHED).glob(f"*/{METADATA}")]
    write_sums(directory / UNFINISHED / SUMS, [path for folder in folders for path in sorted(folder.iterdir())])
    (directory / UNFINISHED).rename(directory / f"{WHOLE}-{uuid.uuid4().hex[:12]}")


def _discard(directory: Path) -> None:
    """Delete an index. Its directory is renamed first, so that a half-deleted index never counts as complete."""
    shutil.rmtree(directory / UNFINISHED, ignore_errors=True)
    if place := whole_in(directory):
        place.rename(directory / UNFINISHED)
    shutil.rmtree(directory / VECTORS, ignore_errors=True)  # delete the vectors before the file with their origin
    shutil.rmtree(directory, ignore_errors=True)


def _command(corpus: Corpus, embedder: Embedder) -> str:
    """Return the command line that builds the index."""
    return corpus.command if embedder.name == DEFAULT else f"{corpus.command} --embedder {shlex.quote(embedder.name)}"


def _origin(corpus: Corpus, embedder: Embedder) -> dict[str, str]:
    """Return the origin of an index: the fingerprints of its corpus and embedder, and Chroma's major version. Chroma
    can read files of the same major version."""
    chroma = importlib.metadata.version("chromadb").split(".")[0]
    return {"corpus": corpus.fingerprint, "embedder": embedder.fingerprint, "chroma": chroma}


def _check(directory: Path, origin: dict[str, str], command: str) -> None:
    """Raise UserError if the directory has no index, and StaleError if the index has another origin. Both name the
    `command`."""
    if not (directory / ABOUT).exists():
        raise UserError(f"there is no index in {directory}: run `{command}`.")
    try:
        there = dict(json.loads(read_regular(directory / ABOUT, MAX_ABOUT_BYTES)))
    except (ValueError, TypeError) as error:
        raise StaleError(f"{directory / ABOUT} is damaged ({error})", command) from error
    if another := " and ".join(name for name in origin if origin[name] != there.get(name)):
        raise StaleError(f"the index in {directory} was made from another {another} than the present one", command)


def _client(directory: Path) -> Any:
    chromadb = _chromadb()
    return chromadb.PersistentClient(str(directory), settings=chromadb.Settings(anonymized_telemetry=False))


def _chromadb() -> Any:
    return require("chromadb", "search", "search")  # an extra, and slow to import, so it is imported only here
