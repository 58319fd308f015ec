"""Starts the real server, and computes reference answers.

The server runs in this process: a process of its own takes some ten seconds to import PyTorch, and
`test_life.py` and the tests of slimrl-sandbox start the command itself.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import torch

from packages.serve.tests.conftest import serving
from slimrl.config.model import ModelConfig
from slimrl.inference.engine import Engine
from slimrl.inference.scheduler import PLAIN, Request, RequestOptions
from slimrl.models.load import Policy, load_policy
from slimrl.types import SamplingParams
from slimrl_serve.command import SWITCH_INTERVAL_S


@dataclass(frozen=True, slots=True)
class Server:
    """A running server. `model` is the served name; OpenAI's routes begin with `/v1`."""

    url: str
    model: str
    directory: Path

    @property
    def v1(self) -> str:
        return f"{self.url}/v1"


@contextmanager
def served(directory: Path, **settings: int) -> Iterator[Server]:
    """Serve a model directory in float32 on a free port until the block ends, with threads that take turns as they do
    in the command."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        with serving(directory, **settings) as running:
            yield Server(running.address, "tiny", directory)
    finally:
        sys.setswitchinterval(before)


def metric(server: Server, name: str) -> float:
    """The present value of a metric of the server, by its name without prefix and labels."""
    lines = httpx.get(f"{server.url}/metrics", verify=False).text.splitlines()  # certificates take 20 ms to read
    values = [line.rsplit(" ", 1)[1] for line in lines if line.partition("{")[0].partition(" ")[0] == f"slimrl:{name}"]
    assert len(values) == 1, f"{len(values)} metrics are called {name}"
    return float(values[0])


def wait_for(server: Server, name: str, value: float, timeout_s: float = 20.0) -> None:
    """Wait until a metric has a value; fail after a while."""
    give_up = time.monotonic() + timeout_s
    while (found := metric(server, name)) != value:
        assert time.monotonic() < give_up, f"{name} is still {found}, not {value}"
        time.sleep(0.02)


class Reference:
    """The same weights in this process, for the engine and for the plain forward of transformers."""

    def __init__(self, directory: Path, num_slots: int = 4, capacity: int = 512) -> None:
        self.policy: Policy = load_policy(ModelConfig(name=str(directory), device="cpu", dtype="float32"))
        self._engine = Engine(self.policy.module, self.policy.chat.stop_ids, num_slots, capacity)

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
