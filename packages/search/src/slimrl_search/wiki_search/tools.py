"""The three tools of a search over a corpus: find pages by title, list a page's sections, read a section."""

import difflib
from pathlib import Path
from threading import Lock

from slimrl.models.quiet import no_progress_bars
from slimrl.tools.base import Tool, ToolError
from slimrl_sandbox.base import Tools
from slimrl_search.retrieval.corpus import Corpus
from slimrl_search.retrieval.embedding import SentenceEmbedder
from slimrl_search.retrieval.index import NUM_RESULTS, TitleIndex, writable
from slimrl_search.retrieval.pages import Page
from slimrl_search.retrieval.prepare import CORPUS, INDEX
from slimrl_search.retrieval.sections import key_of, list_sections, section_text, sections_of, split_section_id

Rows = list[dict[str, str]]
# The maximum length of an argument. With a million characters, a program could keep the host busy after its own exit.
MAX_CHARS = 1000


class WikiTools:
    """The tools of the verifiers environment `wiki-search`. `retrieval/sections.py` lists the differences.

    A mistake in a call raises ToolError, which names the most similar id. Several threads may call the tools at once.
    """

    def __init__(self, corpus: Corpus, index: TitleIndex, num_results: int = NUM_RESULTS) -> None:
        self._corpus = corpus
        self._index = index
        self._num_results = num_results
        self._search_lock = Lock()  # embedders are not safe to call from several threads

    @property
    def by_name(self) -> dict[str, Tool]:
        """The tools by the names under which the policy calls them."""
        return {tool.__name__: tool for tool in (self.search_pages, self.view_sections, self.read_section)}

    def page_ids(self, query: str) -> list[str]:
        """Return the ids of the pages that a search finds, nearest first."""
        return [page_id for page_id, _ in self._search(query)]

    def search_pages(self, query: str) -> Rows:
        """Finds pages by title.

        Returns [{"page_id": ..., "title": ...}, ...], the nearest first.
        """
        _check_length("search_pages", query)
        if not query.strip():
            raise ToolError("search_pages: the query is empty.")
        return [{"page_id": page_id, "title": title} for page_id, title in self._search(query)]

    def view_sections(self, page_id: str) -> Rows:
        """Lists the sections of a page.

        Returns [{"section_id": ..., "section_name": ...}, ...].
        """
        _check_length("view_sections", page_id)
        return list_sections(self._page(page_id))

    def read_section(self, section_id: str) -> str:
        """Reads a section.

        Returns its text. The section `page_id:full` is the whole page.
        """
        _check_length("read_section", section_id)
        if ":" not in section_id:
            raise ToolError(f"read_section: {section_id!r:.100} is no section id, which is `page_id:section`.")
        split = split_section_id(section_id, self._corpus)
        if split is None:
            raise self._unknown_page(section_id.partition(":")[0])
        page_id, key = split
        page = self._corpus.page(page_id)
        assert page is not None, page_id
        text = section_text(page, key)
        if text is None:
            keys = [section.key for section in sections_of(page.content)] or ["full"]
            near = (difflib.get_close_matches(key_of(key), keys, 1, cutoff=0.0) or keys)[0]
            raise ToolError(f"page `{page_id}` has no section `{key:.100}`. Did you mean `{page_id}:{near}`?")
        return text

    def _search(self, query: str) -> tuple[tuple[str, str], ...]:
        with self._search_lock:
            return self._index.search(query, self._num_results)

    def _page(self, page_id: str) -> Page:
        page = self._corpus.page(page_id)
        if page is None:
            raise self._unknown_page(page_id)
        return page

    def _unknown_page(self, page_id: str) -> ToolError:
        # A corpus may have millions of ids, too many to compare, so only pages that a search finds are compared.
        found = [found_id for found_id, _ in self._search(page_id.replace("_", " ").strip() or "?")]
        near = (difflib.get_close_matches(page_id, found, 1, cutoff=0.0) or found)[0]
        return ToolError(f"there is no page `{page_id:.100}`. Did you mean `{near}`?")


def _check_length(tool: str, argument: str) -> None:
    if len(argument) > MAX_CHARS:
        raise ToolError(f"{tool}: {argument!r:.50} has {len(argument)} characters; {MAX_CHARS} are allowed.")


def tools(data_dir: Path) -> Tools:
    """Return the tools by name, for the option `--tools` of a sandbox server. `data_dir` has a corpus and an index,
    made by `scripts/setup_environment.py`. Raises UserError if the corpus or the index does not exist."""
    corpus = Corpus(data_dir / CORPUS)
    with no_progress_bars():
        embedder = SentenceEmbedder()
    return WikiTools(corpus, TitleIndex(writable(data_dir / INDEX), corpus, embedder)).by_name
