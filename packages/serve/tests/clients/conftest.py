"""One server of a random model for all tests of a session, and one of a model that has learnt a few replies."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from packages.serve.tests.clients.parrot import save_parrot_model
from packages.serve.tests.clients.serving import Reference, Server, served
from slimrl.io.cache import build_once


@pytest.fixture(scope="session")
def server(tiny_dir: Path) -> Iterator[Server]:
    """A server of a random model; its replies have no meaning."""
    with served(tiny_dir, max_slots=8, context_len=512, max_queue=64) as running:
        yield running


@pytest.fixture(scope="session")
def reference(tiny_dir: Path) -> Reference:
    return Reference(tiny_dir)


@pytest.fixture(scope="session")
def parrot_dir(own_cache: Path) -> Path:
    """Trained by the first process of the session that needs it."""
    return build_once(own_cache / "parrot", save_parrot_model, "a parrot")


@pytest.fixture(scope="session")
def parrot(parrot_dir: Path) -> Iterator[Server]:
    """A server of the model that calls tools and ends its turns."""
    with served(parrot_dir, max_slots=8, context_len=1024, max_queue=64) as running:
        yield running


@pytest.fixture(scope="session")
def parrot_reference(parrot_dir: Path) -> Reference:
    return Reference(parrot_dir, capacity=1024)
