"""Starts the real server in a process of its own, as the command does, and computes reference answers."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import torch

from slimrl.config.model import ModelConfig
from slimrl.inference.engine import Engine
from slimrl.models.load import Policy, load_policy
from slimrl.types import SamplingParams

START_S = 120.0
STOP_S = 20.0


@dataclass(frozen=True, slots=True)
class Server:
    """A running server. `model` is the served name; OpenAI's routes begin with `/v1`."""

    url: str
    model: str
    directory: Path
    pid: int

    @property
    def v1(self) -> str:
        return f"{self.url}/v1"


@contextmanager
def served(directory: Path, log: Path, **flags: str | int) -> Iterator[Server]:
    """Serve a model directory in float32 on a free port until the block ends."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {"model.name": directory, "model.dtype": "float32", "served_model_name": "tiny", "port": port, **flags}
    command = [sys.executable, "-m", "slimrl", "inference"]
    command += [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
    try:
        _wait(process, f"http://127.0.0.1:{port}", log)
        yield Server(f"http://127.0.0.1:{port}", "tiny", directory, process.pid)
        assert process.poll() is None, f"the server has ended:\n{log.read_text(encoding='utf-8')}"
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    give_up = time.monotonic() + START_S
    while time.monotonic() < give_up and process.poll() is None:
        try:
            if httpx.get(f"{url}/health", timeout=5.0).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"the server did not start:\n{log.read_text(encoding='utf-8')}")


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

    def greedy(self, prompt: list[int], max_tokens: int) -> tuple[list[int], list[float]]:
        """The engine's greedy tokens and their log-probabilities."""
        params = SamplingParams(max_tokens=max_tokens, temperature=0.0)
        request = self._engine.submit(prompt, params, lambda sampled: False)
        while self._engine.busy:
            self._engine.step()
        return request.completion_ids, request.logprobs

    @torch.inference_mode()
    def score(self, prompt: Sequence[int], completion: Sequence[int]) -> list[float]:
        """The log-probability of each token of the completion, by transformers."""
        ids = torch.tensor([[*prompt, *completion]])
        logprobs_TV = self.policy.module(input_ids=ids).logits[0].float().log_softmax(-1)
        rows = range(len(prompt) - 1, len(prompt) + len(completion) - 1)
        return [float(logprobs_TV[row, token]) for row, token in zip(rows, completion, strict=True)]
