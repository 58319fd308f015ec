"""A search that is quick to set up: real Chroma, and an embedder that knows no more than letters."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from packages.sandbox.tests.conftest import isolated as isolated  # a fixture of the tests here
from packages.search.tests.retrieval.test_index import Letters
from slimrl.environments.find import load_taskset
from slimrl.types import Task, Turn
from slimrl_search.wiki_search.environment import WikiSearch

Made = Callable[..., WikiSearch]
EMBEDDER = "slimrl_search.wiki_search.environment.SentenceEmbedder"
SMALL: dict[str, Any] = {"num_pages": 100, "num_train": 80, "num_test": 10, "num_results": 4}


@pytest.fixture(scope="session")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus and the index of `SMALL`, which tests copy: making them takes longer than most tests."""
    pytest.importorskip("chromadb", reason="the extra [search] is not installed")
    directory = tmp_path_factory.mktemp("wiki_search") / "data"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EMBEDDER, Letters)
        load_taskset("wiki-search", SMALL | {"data_dir": str(directory)}).prepare()
    return directory


@pytest.fixture
def made(small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Makes tasksets from `args`. Those of one test share a corpus and its index."""
    monkeypatch.setattr(EMBEDDER, Letters)
    data = tmp_path / "data"

    def make(**args: Any) -> WikiSearch:
        if "corpus" not in args and not data.exists():
            shutil.copytree(small_data, data)
        taskset = load_taskset("wiki-search", SMALL | {"data_dir": str(data)} | args)
        assert isinstance(taskset, WikiSearch)
        taskset.prepare()
        return taskset

    return make


def turns(taskset: WikiSearch, task: Task, replies: list[str]) -> list[Turn]:
    """What the environment says to the replies."""

    async def played() -> list[Turn]:
        environment = taskset.environment(task)
        await environment.start()
        try:
            return [await environment.step(reply) for reply in replies]
        finally:
            await environment.close()

    return asyncio.run(played())


def read(turn: Turn) -> str:
    (message,) = turn.messages
    return message["content"]


def replies_of(taskset: WikiSearch, task: Task) -> list[str]:
    return [message["content"] for message in taskset.scripts["expert"](task, 0) if message["role"] == "assistant"]
