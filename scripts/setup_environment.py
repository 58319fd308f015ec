"""Gets ready what the environment `wiki-search` needs: a corpus on disk and an index of its titles.

    uv run python scripts/setup_environment.py
    uv run python scripts/setup_environment.py --corpus willcb/rare-wiki-pages --data-dir data/wiki
    uv run python scripts/setup_environment.py --corpus pages.jsonl --rebuild

May be interrupted at any moment and goes on where it was; does nothing where everything is there. What is there of
other pages, or is damaged, is replaced, and a line says so. DEV=1 makes ten pages do, to see that it works. `.env` may
set DATA_DIR, where the pages are `corpus.sqlite` and the index `.chroma_db`.
"""

import argparse
import os
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import check_installed  # noqa: F401  # ends the script where slimrl is missing
from dotenv import load_dotenv

from slimrl.monitor.console import RunConsole
from slimrl_search.retrieval.corpus import StaleError
from slimrl_search.retrieval.embedding import SentenceEmbedder
from slimrl_search.retrieval.prepare import GENERATED, INDEX, Source, directory_of, prepare_corpus, prepare_index
from slimrl_search.scripts.wiki_search import new_source
from slimrl_search.services.container import build_image
from slimrl_search.services.server import run_script

T = TypeVar("T")


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--corpus",
        default=GENERATED,
        help="`generated` (the default), a .jsonl or .parquet file with the columns id, title and content, a folder of "
        "markdown, a MediaWiki dump (.xml, .xml.bz2), or a data set on the Hub",
    )
    parser.add_argument(
        "--num-pages",
        type=int,
        default=new_source(os.environ).num_pages,
        help="of a generated corpus (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of a generated corpus")
    parser.add_argument(
        "--data-dir",
        default=os.environ.get("DATA_DIR", ""),
        help="where it goes; by default $DATA_DIR, or the cache, where the environment looks by itself",
    )
    parser.add_argument("--skip-index", action="store_true", help="write the corpus alone")
    parser.add_argument(
        "--docker-only", action="store_true", help="build the image of the sandbox's container, and nothing else"
    )
    parser.add_argument("--rebuild", action="store_true", help="throw away what is there")
    arguments = parser.parse_args(argv)
    if arguments.docker_only:
        build_image()
    else:
        set_up(arguments)
    return 0


def set_up(arguments: argparse.Namespace) -> None:
    source = Source(arguments.corpus, arguments.num_pages, arguments.seed)
    console, began = RunConsole(), time.monotonic()
    directory = directory_of(source, arguments.data_dir)

    def build(prepare: Callable[[bool], T]) -> T:
        """What `prepare(rebuild)` builds, anew if asked for, or if what is there is stale."""
        try:
            return prepare(arguments.rebuild)
        except StaleError as stale:
            console.note(f"{stale.found}: building it anew", "yellow")
            return prepare(True)

    corpus = build(lambda rebuild: prepare_corpus(directory, source, console.progress, rebuild))
    console.note(f"{len(corpus):,} pages in {corpus.path}")
    if arguments.skip_index:
        return
    embedder = load_embedder()
    build(lambda rebuild: prepare_index(directory, corpus, embedder, console.progress, rebuild)).close()
    console.note(f"index of their titles in {directory / INDEX}, {time.monotonic() - began:.0f} s")


def load_embedder() -> SentenceEmbedder:
    from slimrl.models.quiet import no_progress_bars  # it loads transformers, for which --help need not wait

    with no_progress_bars():
        return SentenceEmbedder()


if __name__ == "__main__":
    load_dotenv()
    run_script(main, "the same command, without --rebuild, goes on where it was")
