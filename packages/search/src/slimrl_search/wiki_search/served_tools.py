"""The three tools as a sandbox server needs them: its `--tools slimrl_search.wiki_search.served_tools:tools`."""

from pathlib import Path

from slimrl.models.quiet import no_progress_bars
from slimrl_sandbox.base import Tools
from slimrl_search.retrieval.corpus import Corpus
from slimrl_search.retrieval.embedding import SentenceEmbedder
from slimrl_search.retrieval.index import TitleIndex, writable
from slimrl_search.retrieval.prepare import CORPUS, INDEX
from slimrl_search.wiki_search.tools import WikiTools


def tools(data_dir: Path) -> Tools:
    """Return the tools by name, over the corpus and index that `scripts/setup_environment.py` made in the directory
    with the default embedder. Raises UserError if these do not exist."""
    corpus = Corpus(data_dir / CORPUS)
    with no_progress_bars():
        embedder = SentenceEmbedder()
    return WikiTools(corpus, TitleIndex(writable(data_dir / INDEX), corpus, embedder)).by_name
