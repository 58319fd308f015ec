"""A search that is quick to set up: real Chroma, and an embedder that knows no more than letters."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slimrl.environments.find import load_taskset
from slimrl.environments.wiki_search.environment import WikiSearch
from tests.retrieval.test_index import Letters
from tests.sandbox.conftest import isolated  # noqa: F401  # a fixture

Made = Callable[..., WikiSearch]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Makes tasksets from `args`. Those of one test share a corpus and its index."""
    pytest.importorskip("chromadb", reason="the extra [search] is not installed")
    monkeypatch.setattr("slimrl.environments.wiki_search.environment.SentenceEmbedder", lambda name: Letters())
    small = {"num_pages": 100, "num_train": 80, "num_test": 10, "num_results": 4, "data_dir": str(tmp_path / "data")}

    def make(**args: Any) -> WikiSearch:
        taskset = load_taskset("wiki-search", small | args)
        assert isinstance(taskset, WikiSearch)
        taskset.prepare()
        return taskset

    return make
