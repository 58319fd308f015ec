"""The `openai` package, unmodified, against our server."""

import json
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from packages.serve.tests.clients.parrot import ADD, SUM_ANSWER, SUM_QUESTION
from packages.serve.tests.conftest import Reference, serving
from slimrl_serve.command import InferenceServer

pytestmark = pytest.mark.slow

ASK: list[Any] = [{"role": "user", "content": SUM_QUESTION}]


def connect(server: InferenceServer) -> OpenAI:
    return OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0, timeout=60.0)


def check_greedy(server: InferenceServer, reference: Reference, question: str, max_tokens: int) -> None:
    """Assert that the answer has the engine's tokens, text and log-probabilities."""
    messages: list[Any] = [{"role": "user", "content": question}]
    prompt = reference.policy.chat.opening(messages)
    tokens, logprobs = reference.greedy(prompt, max_tokens)
    wanted: dict[str, Any] = {"temperature": 0, "max_completion_tokens": max_tokens, "logprobs": True}
    wanted |= {"top_logprobs": 3, "extra_body": {"return_token_ids": True}}
    with connect(server) as client:
        reply = client.chat.completions.create(model="tiny", messages=messages, **wanted)
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


def test_chat_is_the_engines_greedy_text(server: InferenceServer, reference: Reference) -> None:
    check_greedy(server, reference, "What is the capital of France?", 24)


@pytest.mark.nightly  # the model is loaded twice
def test_the_packaged_models_answers_are_the_engines() -> None:
    reference = Reference(Path("smollm2-135m"), capacity=1024)
    with serving(Path("smollm2-135m"), max_slots=8, context_len=1024) as packaged:
        for question in ("What is the capital of France?", "Name three colours.", "Write a line about the sea."):
            check_greedy(packaged, reference, question, 32)


def test_the_stream_helper_accumulates_texts_and_calls(parrot: InferenceServer) -> None:
    for more in ({}, {"tools": [ADD]}):
        wanted: dict[str, Any] = {"model": "tiny", "messages": ASK, "temperature": 0, **more}
        with connect(parrot) as client, client.chat.completions.stream(**wanted) as stream:
            events = list(stream)
            (choice,) = stream.get_final_completion().choices
        texts = "".join(event.delta for event in events if event.type == "content.delta")
        assert texts == ("" if more else SUM_ANSWER) and (choice.message.content or "") == texts
        if more:
            assert choice.finish_reason == "tool_calls"
            assert json.loads(choice.message.tool_calls[0].function.arguments) == {"a": 20, "b": 22}
        else:
            assert {"chunk", "content.delta", "content.done"} <= {event.type for event in events}


def test_a_tool_is_called_and_its_result_read(parrot: InferenceServer) -> None:
    wanted: dict[str, Any] = {"model": "tiny", "tools": [ADD], "temperature": 0}
    with connect(parrot) as client:
        (choice,) = client.chat.completions.create(messages=ASK, **wanted).choices
        (call,) = choice.message.tool_calls
        assert choice.finish_reason == "tool_calls"
        assert call.type == "function" and call.function.name == "add"
        assert json.loads(call.function.arguments) == {"a": 20, "b": 22}
        result = {"role": "tool", "tool_call_id": call.id, "content": "42"}
        (second,) = client.chat.completions.create(messages=[*ASK, choice.message, result], **wanted).choices
        (unwanted,) = client.chat.completions.create(messages=ASK, tool_choice="none", **wanted).choices
    assert (second.message.content, second.finish_reason) == (SUM_ANSWER, "stop")
    assert unwanted.message.tool_calls is None


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        (openai.NotFoundError, {"model": "gpt-9"}, "gpt-9"),
        (openai.BadRequestError, {"messages": [{"role": "user", "content": "a" * 3000}]}, "maximum context length"),
    ],
)
def test_errors_are_openais(
    server: InferenceServer, kind: type[openai.APIStatusError], change: dict[str, Any], words: str
) -> None:
    with connect(server) as client, pytest.raises(kind, match=words) as caught:
        client.chat.completions.create(**{"model": "tiny", "messages": ASK, "max_tokens": 4, **change})
    assert caught.value.body["message"] and caught.value.type
