"""The three tools for a server of the sandbox: its `--tools slimrl.environments.wiki_served:tools`."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from slimrl.environments.wiki_tools import WikiTools
from slimrl.models.quiet import no_progress_bars
from slimrl.retrieval.corpus import Corpus
from slimrl.retrieval.embedding import SentenceEmbedder
from slimrl.retrieval.index import TitleIndex
from slimrl.sandbox.base import Tools


def tools(data_dir: Path) -> Tools:
    """Of the corpus and index in the directory, made by `scripts/setup_environment.py` with the default embedder.
    Raises UserError if they are not there."""
    corpus = Corpus(data_dir / "corpus.sqlite")
    with no_progress_bars():
        embedder = SentenceEmbedder()
    return WikiTools(corpus, TitleIndex(_writable(data_dir / "chroma"), corpus, embedder)).by_name


def _writable(index: Path) -> Path:
    """The index, or where it is mounted read-only, as for a container, a copy: Chroma opens none that it cannot write
    to."""
    if not index.is_dir() or os.access(index, os.W_OK):
        return index
    copy = Path(tempfile.mkdtemp(prefix="slimrl-index-"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    return shutil.copytree(index, copy / index.name)
