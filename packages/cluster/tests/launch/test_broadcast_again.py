"""Weights that are broadcast go again to who is left when a sampler goes meanwhile."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from slimrl.errors import UserError
from slimrl_cluster.launch import weights
from slimrl_cluster.launch.weights import PublishedWeights

CLOSED = RuntimeError("Event loop is closed")  # what asking raises after its connections were closed


@pytest.mark.parametrize("error", [UserError("it is gone"), CLOSED])
def test_a_sampler_that_goes_meanwhile_is_done_without(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    there, sent = ["a", "b"], list[list[str]]()

    def send(present: Any, tensors: Any, version: int) -> None:
        sent.append(sorted(present))
        if "b" in there:
            there.remove("b")
            raise error

    published(send, there, monkeypatch)._broadcast({}, 3)
    assert sent == [["a", "b"], ["a"]]


def test_an_error_while_all_are_there_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def send(present: Any, tensors: Any, version: int) -> None:
        raise CLOSED

    with pytest.raises(RuntimeError, match="closed"):
        published(send, ["a"], monkeypatch)._broadcast({}, 3)


def published(send: Any, there: list[str], monkeypatch: pytest.MonkeyPatch) -> PublishedWeights:
    monkeypatch.setattr(weights, "LOOK_S", 0.01)
    monkeypatch.setattr(weights, "sampler_addresses", lambda config, roster: dict.fromkeys(there))
    files: Any = SimpleNamespace(roster=None, await_part=lambda part: {})
    config = SimpleNamespace(inference=SimpleNamespace(base_url="", backend="vllm"))
    policy = SimpleNamespace(module=torch.nn.Module())
    parts: Any = SimpleNamespace(config=config, policy=policy, ranks=None)
    made = PublishedWeights(parts, files)
    monkeypatch.setattr(made, "_send_to", send)
    return made
