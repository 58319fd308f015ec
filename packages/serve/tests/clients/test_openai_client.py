"""The `openai` package, unmodified, against our server."""

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from packages.serve.tests.clients.parrot import ADD, SUM_ANSWER, SUM_QUESTION
from packages.serve.tests.clients.serving import Reference, Server, served

pytestmark = pytest.mark.slow

CHAT = [{"role": "user", "content": "What is the capital of France?"}]


def connect(server: Server) -> OpenAI:
    return OpenAI(base_url=server.v1, api_key="none", max_retries=0, timeout=60.0)


def test_models_are_listed(server: Server) -> None:
    with connect(server) as client:
        (model,) = client.models.list().data
    assert model.id == "tiny"
    assert model.model_dump()["max_model_len"] == 512


def check_greedy(server: Server, reference: Reference, question: str, max_tokens: int) -> None:
    """Assert that the answer has the engine's tokens, text and log-probabilities."""
    messages: list[Any] = [{"role": "user", "content": question}]
    prompt = reference.policy.chat.opening(messages)
    tokens, logprobs = reference.greedy(prompt, max_tokens)
    wanted: dict[str, Any] = {"temperature": 0, "max_completion_tokens": max_tokens, "logprobs": True}
    with connect(server) as client:
        reply = client.chat.completions.create(
            model=server.model,
            messages=messages,
            top_logprobs=3,
            extra_body={"return_token_ids": True},
            **wanted,
        )
    (choice,) = reply.choices
    assert choice.message.role == "assistant"
    assert choice.message.content == reference.policy.chat.text(tokens)
    assert choice.finish_reason == ("length" if len(tokens) == max_tokens else "stop")
    assert reply.prompt_token_ids == prompt and choice.token_ids == tokens
    assert [entry.logprob for entry in choice.logprobs.content] == pytest.approx(logprobs, abs=1e-3)
    for entry in choice.logprobs.content:
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].logprob == entry.logprob  # greedy takes the likeliest
    assert reply.usage.prompt_tokens == len(prompt) and reply.usage.completion_tokens == len(tokens)


def test_chat_is_the_engines_greedy_text(server: Server, reference: Reference) -> None:
    check_greedy(server, reference, CHAT[0]["content"], 24)


@pytest.mark.nightly  # the model is loaded twice
def test_the_packaged_models_answers_are_the_engines() -> None:
    directory = Path("smollm2-135m")
    reference = Reference(directory, capacity=1024)
    with served(directory, max_slots=8, context_len=1024) as packaged:
        for question in ("What is the capital of France?", "Name three colours.", "Write a line about the sea."):
            check_greedy(packaged, reference, question, 32)


def test_the_stream_helper_accumulates(parrot: Server) -> None:
    messages: list[Any] = [{"role": "user", "content": SUM_QUESTION}]
    with (
        connect(parrot) as client,
        client.chat.completions.stream(model="tiny", messages=messages, temperature=0) as stream,
    ):
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert final.choices[0].message.content == SUM_ANSWER


def test_a_tool_is_called_and_its_result_read(parrot: Server) -> None:
    messages: list[Any] = [{"role": "user", "content": SUM_QUESTION}]
    with connect(parrot) as client:
        first = client.chat.completions.create(model="tiny", messages=messages, tools=[ADD], temperature=0)
        (choice,) = first.choices
        (call,) = choice.message.tool_calls
        assert choice.finish_reason == "tool_calls"
        assert call.type == "function" and call.function.name == "add"
        assert json.loads(call.function.arguments) == {"a": 20, "b": 22}
        messages += [choice.message, {"role": "tool", "tool_call_id": call.id, "content": "42"}]
        second = client.chat.completions.create(model="tiny", messages=messages, tools=[ADD], temperature=0)
        unwanted = client.chat.completions.create(
            model="tiny", messages=messages[:1], tools=[ADD], tool_choice="none", temperature=0
        )
    assert second.choices[0].message.content == SUM_ANSWER
    assert second.choices[0].finish_reason == "stop"
    assert unwanted.choices[0].message.tool_calls is None


def test_a_streamed_tool_call_is_accumulated(parrot: Server) -> None:
    with (
        connect(parrot) as client,
        client.chat.completions.stream(
            model="tiny", messages=[{"role": "user", "content": SUM_QUESTION}], tools=[ADD], temperature=0
        ) as stream,
    ):
        texts = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    (choice,) = final.choices
    assert "".join(texts) == ""
    assert choice.finish_reason == "tool_calls"
    assert json.loads(choice.message.tool_calls[0].function.arguments) == {"a": 20, "b": 22}


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        (openai.NotFoundError, {"model": "gpt-9"}, "gpt-9"),
        (
            openai.BadRequestError,
            {"messages": [{"role": "user", "content": "a" * 3000}]},
            "maximum context length is 512",
        ),
    ],
)
def test_errors_are_openais(
    server: Server, kind: type[openai.APIStatusError], change: dict[str, Any], words: str
) -> None:
    with connect(server) as client, pytest.raises(kind, match=words) as caught:
        client.chat.completions.create(**{"model": "tiny", "messages": CHAT, "max_tokens": 4, **change})
    assert caught.value.body["message"] and caught.value.type


def test_many_requests_at_once_are_each_answered_as_alone(server: Server, reference: Reference) -> None:
    prompts = [reference.encode(f"{word} {index}") for index in range(8) for word in ("The", "user", "What is")]
    expected = [reference.greedy(prompt, 16) for prompt in prompts]

    async def ask() -> list[Any]:
        async with AsyncOpenAI(base_url=server.v1, api_key="none", max_retries=0) as client:
            wanted: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_tokens": 16, "logprobs": 0}
            extra = {"return_token_ids": True}
            return await asyncio.gather(
                *(client.completions.create(prompt=prompt, extra_body=extra, **wanted) for prompt in prompts)
            )

    for reply, (tokens, logprobs) in zip(asyncio.run(ask()), expected, strict=True):
        assert reply.choices[0].token_ids == tokens
        assert reply.choices[0].logprobs.token_logprobs == pytest.approx(logprobs, abs=1e-4)
        assert all(math.isfinite(value) for value in reply.choices[0].logprobs.token_logprobs)
