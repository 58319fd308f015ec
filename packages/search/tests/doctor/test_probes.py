"""The finding on the index; no test depends on the machine that it runs on."""

import pytest

from slimrl.monitor.findings import Level
from slimrl_search.doctor import search


def test_an_index_in_memory_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("chromadb")
    pytest.importorskip("sentence_transformers")
    assert search.probe()[0].level is Level.OK
    monkeypatch.setattr(search, "try_chroma", lambda: ["far", "near"])
    assert [one.level for one in search.probe()] == [Level.PROBLEM]
    monkeypatch.setattr(search, "find_spec", lambda name: None)
    assert [one.level for one in search.probe()] == [Level.NOTE]
