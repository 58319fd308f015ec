"""Fixtures for every part: no network, one thread, and one tiny model directory for the whole session."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # before huggingface_hub is first imported: it reads this once
os.environ["HF_DATASETS_CACHE"] = tempfile.mkdtemp(prefix="slimrl-tests-")  # likewise, and out of the user's cache

import pytest
import torch

from slimrl.retrieval.corpus import Corpus
from slimrl.retrieval.embedding import Embedder
from slimrl.retrieval.index import TitleIndex
from tests.tiny import tiny_model_dir


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tiny models gain nothing from threads, and results must not depend on the machine's number of cores."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep out of the user's cache. Shared by the session, commands in other processes included: the packaged model
    is converted by the first test that needs it, and only once."""
    with pytest.MonkeyPatch.context() as patch:
        cache = tmp_path_factory.mktemp("cache")
        patch.setenv("SLIMRL_CACHE", str(cache))
        yield cache


@pytest.fixture(autouse=True)
def indexes_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Many more are opened here than in any command, and a process may only have some thousand files open."""
    opened: list[TitleIndex] = []

    class Remembered(TitleIndex):
        def __init__(self, directory: Path, corpus: Corpus, embedder: Embedder) -> None:
            super().__init__(directory, corpus, embedder)
            opened.append(self)

    monkeypatch.setattr("slimrl.retrieval.prepare.TitleIndex", Remembered)
    yield
    for index in opened:
        index.close()


@pytest.fixture(scope="session")
def tiny_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama on disk with tokenizer and chat template. Shared: do not write into it."""
    return tiny_model_dir(tmp_path_factory.mktemp("models"), "llama")
