"""A real server, uvicorn and engine, on a free port with a tiny model; one is shared by the tests of this folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from slimrl.config.model import ModelConfig
from slimrl.config.serve import ServeConfig
from slimrl_serve.command import InferenceServer

CONTEXT_LEN = 512
SLOTS = 4


def config_of(model: Path, **settings: Any) -> ServeConfig:
    return ServeConfig(
        **{
            "port": 0,
            "context_len": CONTEXT_LEN,
            "max_slots": SLOTS,
            "max_queue": 256,
            "served_model_name": "tiny",
            "grace_s": 1,
            "model": ModelConfig(name=str(model), device="cpu", dtype="float32", num_threads=1),
            **settings,
        }
    )


@contextmanager
def serving(model: Path, **settings: object) -> Iterator[InferenceServer]:
    with InferenceServer(config_of(model, **settings)) as server:
        yield server


@pytest.fixture(scope="session")
def server(tiny_dir: Path) -> Iterator[InferenceServer]:
    with serving(tiny_dir) as running:
        yield running


@pytest.fixture
def http(server: InferenceServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.address, timeout=30, verify=False) as client:
        yield client
