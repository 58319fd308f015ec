"""One stage of `retrieval.py` in a process of its own, so that its peak of memory is its own.

    python -m benchmarks.sides.retrieval_work index --num-pages 10000 --directory DIRECTORY --output report.json

`write` makes the corpus, `index` the index of its titles, `search` opens both and searches, `cache` keeps verdicts of a
judge. `index` may be killed and run again: what each batch took is written down beside the index as it is done.
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch

from slimrl.judges.judge import VerdictCache
from slimrl.models.quiet import no_progress_bars
from slimrl_search.retrieval.corpus import Corpus, build_corpus
from slimrl_search.retrieval.embedding import Embedder, SentenceEmbedder
from slimrl_search.retrieval.encyclopedia import Encyclopedia
from slimrl_search.retrieval.index import BATCH, TitleIndex, build_index

NUM_RESULTS = 10
NUM_VERDICTS = 100_000
Report = dict[str, Any]


class Parts:
    """Progress that writes down, as it is made, how long each part took: what is done, pages, seconds, and the most
    memory until then."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def __call__(self, what: str, total: int) -> Iterator["Parts"]:
        self._what, self._last = what, time.perf_counter()
        yield self

    def advance(self, count: int = 1) -> None:
        now, peak = time.perf_counter(), peak_mib()
        row = {"what": self._what, "pages": count, "seconds": now - self._last, "peak_mib": peak}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        self._last = now


class Known:
    """Vectors that were worked out before: what is left of a search is the index."""

    def __init__(self, embedder: Embedder, texts: Sequence[str]) -> None:
        self.fingerprint = embedder.fingerprint
        self._vectors = {text: embedder.embed([text])[0] for text in texts}

    def embed(self, texts: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
        return np.stack([self._vectors[text] for text in texts])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    stages: dict[str, Callable[[argparse.Namespace], Report]]
    stages = {"write": write, "index": index, "search": search, "cache": cache}
    parser.add_argument("stage", choices=stages)
    parser.add_argument("--num-pages", type=int, default=1000)
    parser.add_argument("--num-queries", type=int, default=500, help="of each kind: questions, and titles")
    parser.add_argument("--directory", type=Path, required=True, help="of the corpus and the index")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    report = stages[arguments.stage](arguments) | {"peak_mib": peak_mib()}
    arguments.output.write_text(json.dumps(report), encoding="utf-8")


def write(arguments: argparse.Namespace) -> Report:
    began = time.perf_counter()
    path = arguments.directory / "corpus.sqlite"
    corpus = build_corpus(path, Encyclopedia(arguments.num_pages).pages(), "a benchmark", lambda count: None)
    seconds = time.perf_counter() - began
    return {"pages": len(corpus), "seconds": seconds, "disk_mib": mib_on_disk(path)}


def index(arguments: argparse.Namespace) -> Report:
    corpus, embedder = Corpus(arguments.directory / "corpus.sqlite"), load_embedder()
    before, parts = resident_mib(), arguments.directory / "parts.jsonl"
    build_index(arguments.directory / "chroma", corpus, embedder, Parts(parts))
    rows = [json.loads(line) for line in parts.read_text(encoding="utf-8").splitlines()]
    embedded = [row for row in rows if row["what"] == "embedding titles"]
    # Of a run that was killed while it filled the collection, the rows of that are of no use: it begins again.
    filled = [row for row in rows if row["what"] == "indexing titles"][-ceil(len(corpus) / BATCH) :]
    return {
        "pages": len(corpus),
        "embed_s": sum(row["seconds"] for row in embedded),
        "fill_s": sum(row["seconds"] for row in filled),
        "last_batch_fill_s": filled[-1]["seconds"],
        "batch": BATCH,
        "resident_before_mib": before,
        "peak_of_all_runs_mib": max(row["peak_mib"] for row in rows),
        "disk_mib": mib_on_disk(arguments.directory / "chroma"),
    }


def search(arguments: argparse.Namespace) -> Report:
    embedder, before = load_embedder(), resident_mib()
    embedder.embed(["warm up"])
    began = time.perf_counter()
    corpus = Corpus(arguments.directory / "corpus.sqlite")
    opened = TitleIndex(arguments.directory / "chroma", corpus, embedder)
    opened.search("the first search loads the graph", NUM_RESULTS)
    open_s = time.perf_counter() - began
    asked = list(islice(Encyclopedia(arguments.num_pages).questions(), arguments.num_queries))
    titles = [page.title for question in asked if (page := corpus.page(question.page_id)) is not None]
    report: Report = {"open_s": open_s, "resident_before_mib": before, "resident_opened_mib": resident_mib()}
    wanted = [question.page_id for question in asked]
    for name, queries in (("question", [question.question for question in asked]), ("title", titles)):
        found, seconds = search_all(opened, queries)
        known = TitleIndex(arguments.directory / "chroma", corpus, Known(embedder, queries))
        _, without = search_all(known, queries)
        places = [ids.index(page_id) if page_id in ids else -1 for ids, page_id in zip(found, wanted, strict=True)]
        report[name] = {
            "queries": len(queries),
            "seconds": seconds,
            "without_embedding_s": without,
            "in_first_10": sum(place >= 0 for place in places) / len(places),
            "first": places.count(0) / len(places),
        }
    return report | {"resident_after_mib": resident_mib()}


def search_all(opened: TitleIndex, queries: Sequence[str]) -> tuple[list[list[str]], list[float]]:
    """The page ids found for each query, and the seconds of each."""
    found, seconds = [], []
    for query in queries:
        began = time.perf_counter()
        rows = opened.search(query, NUM_RESULTS)
        seconds.append(time.perf_counter() - began)
        found.append([page_id for page_id, _ in rows])
    return found, seconds


def cache(arguments: argparse.Namespace) -> Report:
    before, began = resident_mib(), time.perf_counter()
    path = arguments.directory / "verdicts.txt"
    verdicts = VerdictCache(path)
    for number in range(NUM_VERDICTS):
        verdicts.put(f"{number:064x}", number % 2 == 0)
    put_s, began = time.perf_counter() - began, time.perf_counter()
    assert all(verdicts.get(f"{number:064x}") == (number % 2 == 0) for number in range(NUM_VERDICTS))
    return {
        "verdicts": NUM_VERDICTS,
        "put_s": put_s,
        "get_s": time.perf_counter() - began,
        "resident_before_mib": before,
        "resident_after_mib": resident_mib(),
        "disk_mib": mib_on_disk(path),
    }


def load_embedder() -> SentenceEmbedder:
    with no_progress_bars():
        return SentenceEmbedder()


def resident_mib() -> float:
    """Memory of this process that is its own, now; files that it maps, which the system may drop, are not counted."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith("RssAnon")).split()[1]) / 1024


def peak_mib() -> float:
    """The most memory that this process has had, mapped files included."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1024**2 if sys.platform == "darwin" else peak / 1024


def mib_on_disk(path: Path) -> float:
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files) / 1024**2


if __name__ == "__main__":
    main()
