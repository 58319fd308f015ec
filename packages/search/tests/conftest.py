"""Closes the indexes that tests open."""

from collections.abc import Iterator
from typing import Any

import pytest

from slimrl_search.retrieval import prepare
from slimrl_search.retrieval.index import TitleIndex


@pytest.fixture(autouse=True)
def indexes_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Many more are opened here than in any command, and a process may only have some thousand files open."""
    opened: list[TitleIndex] = []

    class Remembered(TitleIndex):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            opened.append(self)

    monkeypatch.setattr(prepare, "TitleIndex", Remembered)
    yield
    for index in opened:
        index.close()
