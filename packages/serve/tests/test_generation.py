"""Choices are reported completely and once."""

import asyncio

import pytest

from slimrl.inference.scheduler import Request
from slimrl_serve.bodies import CompletionBody
from slimrl_serve.command import InferenceServer
from slimrl_serve.completions import Completions
from slimrl_serve.generation import Choice
from slimrl_serve.worker import EngineThread

PROMPT = list(range(60, 90))


def finish(choice: Choice) -> None:
    """Bring a choice into the state in which the engine's thread leaves it after its only token."""
    choice.request = Request(choice.prompt, choice.params, choice.finished, choice.options)
    choice.request.tokens.append(70)
    choice.request.logprobs.append(-1.0)
    choice.request.versions.append(0)
    choice.request.finish_reason = "length"


def test_a_stream_ends_once_even_if_the_engine_finishes_while_it_is_written(
    server: InferenceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EngineThread, "submit", lambda thread, job: None)

    async def scenario() -> list[tuple[str | None, str]]:
        made = Completions(server.service, CompletionBody(prompt=PROMPT, stream=True), "id", [PROMPT], [1])
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
