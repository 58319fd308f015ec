"""Search for pages by title: a ChromaDB collection on disk, `wiki_titles`, of the titles of one corpus.

Building goes on where it was interrupted: only ids that are missing are added. What the vectors came from is written
beside them, so that an index of another corpus, embedder or version of Chroma is noticed before it answers.
"""

import importlib.metadata
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from slimrl.errors import UserError
from slimrl.retrieval.corpus import Corpus
from slimrl.retrieval.embedding import Embedder

COLLECTION = "wiki_titles"
ABOUT = "about.json"
BATCH = 1000  # titles that are embedded and added together: what an interruption loses
NUM_RESULTS = 10
REMEMBERED = 4096  # queries whose results are kept: a group's rollouts ask alike
REBUILD = "uv run python scripts/setup_environment.py --rebuild"


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
    """A whole index of the corpus, opened for searching. Raises UserError if it is missing, unfinished, or stale."""

    def __init__(self, directory: Path, corpus: Corpus, embedder: Embedder) -> None:
        _check(directory, _origin(corpus, embedder))
        self._collection = _collection(directory)
        if (found := self._collection.count()) != len(corpus):
            raise UserError(
                f"the index in {directory} has {found} of {len(corpus)} pages: it was interrupted. Go on with `uv run "
                "python scripts/setup_environment.py`."
            )
        self._embedder = embedder
        self.search = lru_cache(maxsize=REMEMBERED)(self._search)

    def _search(self, query: str, num_results: int = NUM_RESULTS) -> tuple[tuple[str, str], ...]:
        """(page id, title) of the pages with the nearest titles, nearest first."""
        found = self._collection.query(
            query_embeddings=self._embedder.embed([query]), n_results=num_results, include=["documents"]
        )
        return tuple(zip(found["ids"][0], found["documents"][0], strict=True))


def build_index(
    directory: Path, corpus: Corpus, embedder: Embedder, on_pages: Callable[[int], None], rebuild: bool = False
) -> int:
    """Make the index of the corpus in `directory`, or finish it, and return how many pages were added.

    `on_pages` is told how many more are in it, those that were there before included. A stale index raises UserError,
    or is thrown away if `rebuild` says so.
    """
    origin = _origin(corpus, embedder)
    if rebuild and (directory / ABOUT).is_file():
        _client(directory).delete_collection(COLLECTION)
        (directory / ABOUT).unlink()
    directory.mkdir(parents=True, exist_ok=True)
    if (directory / ABOUT).is_file():
        _check(directory, origin)
    else:
        _write_about(directory, origin)
    collection, added = _collection(directory), 0
    if collection.count() == len(corpus):
        on_pages(len(corpus))
        return 0
    titles = corpus.titles()
    while batch := list(islice(titles, BATCH)):
        there = set(collection.get(ids=[page_id for page_id, _ in batch], include=[])["ids"])
        if missing := [(page_id, title) for page_id, title in batch if page_id not in there]:
            _add(collection, embedder, missing)
            added += len(missing)
        on_pages(len(batch))
    return added


def _add(collection: Any, embedder: Embedder, rows: Sequence[tuple[str, str]]) -> None:
    titles = [title for _, title in rows]
    collection.add(
        ids=[page_id for page_id, _ in rows],
        embeddings=embedder.embed(titles),
        documents=titles,
        metadatas=[{"title": title} for title in titles],
    )


def _origin(corpus: Corpus, embedder: Embedder) -> Origin:
    return Origin(corpus.fingerprint, embedder.fingerprint, importlib.metadata.version("chromadb").split(".")[0])


def _write_about(directory: Path, origin: Origin) -> None:
    unfinished = directory / (ABOUT + ".unfinished")
    unfinished.write_text(json.dumps(asdict(origin), indent=1), encoding="utf-8")
    unfinished.replace(directory / ABOUT)


def _check(directory: Path, origin: Origin) -> None:
    """Raise UserError unless the index in the directory was made from `origin`."""
    try:
        found = Origin(**json.loads((directory / ABOUT).read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise UserError(
            f"there is no index in {directory}: run `uv run python scripts/setup_environment.py`."
        ) from None
    except (ValueError, TypeError) as error:
        raise UserError(f"{directory / ABOUT} is damaged ({error}): run `{REBUILD}`.") from error
    if differing := found.differences(origin):
        raise UserError(
            f"the index in {directory} was made from another {' and '.join(differing)} than the present one: run "
            f"`{REBUILD}`, or name the ones it was made from."
        )


def _collection(directory: Path) -> Any:
    return _client(directory).get_or_create_collection(
        COLLECTION, configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
    )


def _client(directory: Path) -> Any:
    try:
        import chromadb  # an extra, and slow to import: only here
    except ImportError as error:
        raise UserError(f"search needs the extra [search]: `uv sync --extra search` ({error}).") from error
    return chromadb.PersistentClient(str(directory), settings=chromadb.Settings(anonymized_telemetry=False))
