"""Choices are reported completely and once, and counted at their end."""

import asyncio
from typing import Any

import pytest

from slimrl.inference.scheduler import Request
from slimrl_serve.bodies import CompletionBody
from slimrl_serve.command import InferenceServer
from slimrl_serve.completions import Completions
from slimrl_serve.generation import Choice
from slimrl_serve.worker import EngineThread

PROMPT = list(range(60, 90))


@pytest.fixture
def reply(server: InferenceServer, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a reply with two choices that the engine does not know; they began at 100 s."""
    monkeypatch.setattr(EngineThread, "submit", lambda thread, job: None)

    def make(**fields: Any) -> Completions:
        body = CompletionBody(prompt=PROMPT, stream=True, n=2, **fields)
        made = Completions(server.service, body, "id", [PROMPT], [1], body.logprobs, texts=[""])
        made.began = 100.0
        return made

    return make


def finish(choice: Choice) -> None:
    """Bring a choice into the state in which the engine's thread leaves it after its only token."""
    choice.request = Request(choice.prompt, choice.params, choice.finished, choice.options)
    choice.request.tokens.append(70)
    choice.request.logprobs.append(-1.0)
    choice.request.versions.append(0)
    choice.request.finish_reason = "length"
    choice.first_token_at, choice.finished_at = 101.0, 103.0


def test_a_stream_ends_once_even_if_the_engine_finishes_while_it_is_written(
    server: InferenceServer, reply: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> list[tuple[str | None, str]]:
        made = reply()
        del made.choices[1]
        finish(made.choices[0])
        asked = iter([False, True])  # as if the engine had finished it in between
        monkeypatch.setattr(Choice, "is_done", property(lambda choice: next(asked)))
        chunks = []
        made.arrived.set()
        async for chunk in made.chunks():
            chunks.append((chunk["choices"][0]["finish_reason"], chunk["choices"][0]["text"]))
            made.arrived.set()
        return chunks

    assert asyncio.run(scenario()) == [(None, server.service.vocabulary.decode([70])), ("length", "")]


def test_no_choice_is_sent_before_its_prompt_is_scored(reply: Any) -> None:
    async def scenario() -> list[int]:
        made = reply(echo=True, logprobs=0)
        first, second = made.choices
        finish(second)
        changes = made.changes()
        made.arrived.set()
        earliest = asyncio.ensure_future(anext(changes))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not earliest.done()
        finish(first)
        made.arrived.set()
        return [(await earliest)[0].index, *[choice.index async for choice, _ in changes]]

    assert asyncio.run(scenario()) == [0, 1]


@pytest.mark.parametrize("client_left", [False, True])
def test_latency_ends_with_the_last_token_and_only_a_client_that_leaves_is_a_disconnect(
    server: InferenceServer, reply: Any, client_left: bool
) -> None:
    metrics = server.service.metrics

    def counts() -> tuple[float, float, float]:
        aborted = metrics.finished.labels("abort")._value.get()
        return metrics.latency._sum.get(), metrics.disconnects._value.get(), aborted

    latency, disconnects, aborted = counts()

    async def scenario() -> None:
        made = reply()
        finish(made.choices[0])
        for _ in range(2):  # the second close does nothing
            made.close(client_left)

    asyncio.run(scenario())
    assert counts() == (pytest.approx(latency + 3.0), disconnects + client_left, aborted + 1)
