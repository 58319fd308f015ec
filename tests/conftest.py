"""Fixtures for every part: no network, one thread, and one tiny model directory for the whole session."""

import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # before huggingface_hub is first imported: it reads this once

import pytest
import torch

from tests.tiny import tiny_model_dir


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tiny models gain nothing from threads, and results must not depend on the machine's number of cores."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama on disk with tokenizer and chat template. Shared: do not write into it."""
    return tiny_model_dir(tmp_path_factory.mktemp("models"), "llama")
