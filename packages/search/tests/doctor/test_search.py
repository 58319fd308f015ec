"""The findings on ChromaDB and the embedder."""

import pytest

from slimrl.monitor.findings import Level
from slimrl_search.doctor import search


def test_an_index_in_memory_is_tried() -> None:
    pytest.importorskip("chromadb")
    assert search.chroma_finding(search.try_chroma()).level is Level.OK
    assert search.chroma_finding(["far", "near"]).level is Level.PROBLEM
    assert search.embedder_finding(None).level is Level.NOTE
