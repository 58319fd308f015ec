"""A real server, uvicorn and engine, on a free port, with a tiny model or with one that has learnt a few replies. They
are shared by the tests of this folder. `Reference` has the answers that they must give."""

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from packages.serve.tests.clients.parrot import save_parrot_model
from slimrl.config.model import ModelConfig
from slimrl.config.serve import ServeConfig
from slimrl.inference.engine import Engine
from slimrl.inference.scheduler import PLAIN, Request, RequestOptions
from slimrl.io.cache import build_once
from slimrl.models.load import load_policy
from slimrl.types import SamplingParams
from slimrl_serve.command import SWITCH_INTERVAL_S, InferenceServer

CONTEXT_LEN = 512
SLOTS = 4


def config_of(directory: Path, /, **settings: Any) -> ServeConfig:
    return ServeConfig(
        **{
            "port": 0,
            "context_len": CONTEXT_LEN,
            "max_slots": SLOTS,
            "max_queue": 256,
            "served_model_name": "tiny",
            "grace_s": 1,
            "model": ModelConfig(name=str(directory), device="cpu", dtype="float32", num_threads=1),
            **settings,
        }
    )


@contextmanager
def serving(directory: Path, /, **settings: object) -> Iterator[InferenceServer]:
    """Serve a model directory until the block ends, with threads that take turns as they do in the command."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        with InferenceServer(config_of(directory, **settings)) as server:
            yield server
    finally:
        sys.setswitchinterval(before)


@contextmanager
def connected(directory: Path, /, **settings: object) -> Iterator[tuple[InferenceServer, httpx.Client]]:
    """A server of its own, and a client of it."""
    with serving(directory, **settings) as server, httpx.Client(base_url=server.address, timeout=30) as http:
        yield server, http


class Reference:
    """The same weights in this process, for the engine and for the plain forward of transformers."""

    def __init__(self, directory: Path, capacity: int = CONTEXT_LEN) -> None:
        self.policy = load_policy(ModelConfig(name=str(directory), device="cpu", dtype="float32"))
        self._engine = Engine(self.policy.module, self.policy.chat.stop_ids, SLOTS, capacity)

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self.policy.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def sample(self, prompt: list[int], params: SamplingParams, options: RequestOptions = PLAIN) -> Request:
        """The engine's finished request."""
        request = self._engine.submit(prompt, params, lambda sampled: False, options)
        while self._engine.busy:
            self._engine.step()
        return request

    def greedy(self, prompt: list[int], max_tokens: int) -> tuple[list[int], list[float]]:
        """The engine's greedy tokens and their log-probabilities."""
        request = self.sample(prompt, SamplingParams(max_tokens=max_tokens, temperature=0.0))
        return request.completion_ids, request.logprobs

    @torch.inference_mode()
    def score(self, prompt: Sequence[int], completion: Sequence[int]) -> list[float]:
        """The log-probability of each token of the completion, by transformers."""
        ids = torch.tensor([[*prompt, *completion]])
        logprobs_TV = self.policy.module(input_ids=ids).logits[0].float().log_softmax(-1)
        rows = range(len(prompt) - 1, len(prompt) + len(completion) - 1)
        return [float(logprobs_TV[row, token]) for row, token in zip(rows, completion, strict=True)]


def eventually(holds: Any) -> None:
    """Wait for another thread; the bound is only there to end a test that fails."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def idle(server: InferenceServer) -> bool:
    return server.service.thread.num_open == 0 and not server.service.engine.busy


@contextmanager
def held(server: InferenceServer) -> Iterator[None]:
    """Keep the engine's thread busy, so that requests wait until the block ends."""
    free = threading.Event()
    server.service.thread._put(lambda engine: free.wait(60))
    try:
        yield
    finally:
        free.set()


def post(http: httpx.Client, path: str, body: Any, status: int = 200) -> Any:
    reply = http.post(path, json=body)
    assert reply.status_code == status, reply.text
    return reply.json()


@pytest.fixture(scope="session")
def server(tiny_dir: Path) -> Iterator[InferenceServer]:
    """A server of a random model; its replies have no meaning."""
    with serving(tiny_dir) as running:
        yield running


@pytest.fixture
def http(server: InferenceServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.address, timeout=60, verify=False) as client:
        yield client


@pytest.fixture(scope="session")
def reference(tiny_dir: Path) -> Reference:
    return Reference(tiny_dir)


@pytest.fixture(scope="session")
def parrot(own_cache: Path) -> Iterator[InferenceServer]:
    """A server of the model that calls tools and ends its turns; it is trained by the first process that needs it."""
    directory = build_once(own_cache / "parrot", save_parrot_model)
    with serving(directory, max_slots=8, context_len=1024) as running:
        yield running
