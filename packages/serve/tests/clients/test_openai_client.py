"""The `openai` package, unmodified, against our server."""

import asyncio
import json
import math
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from packages.serve.tests.clients.parrot import ADD, SUM_ANSWER, SUM_QUESTION
from packages.serve.tests.clients.serving import Reference, Server, wait_for

pytestmark = pytest.mark.slow

CHAT = [{"role": "user", "content": "What is the capital of France?"}]


def connect(server: Server) -> OpenAI:
    return OpenAI(base_url=server.v1, api_key="none", max_retries=0, timeout=60.0)


def chat_ids(reference: Reference) -> list[int]:
    return reference.policy.chat.opening([{"role": "user", "content": CHAT[0]["content"]}])


def test_models_are_listed(server: Server) -> None:
    with connect(server) as client:
        (model,) = client.models.list().data
    assert model.id == "tiny"
    assert model.model_dump()["max_model_len"] == 512


def test_chat_is_the_engines_greedy_text(server: Server, reference: Reference) -> None:
    prompt = chat_ids(reference)
    tokens, logprobs = reference.greedy(prompt, 24)
    with connect(server) as client:
        reply = client.chat.completions.create(
            model="tiny",
            messages=CHAT,
            temperature=0,
            max_completion_tokens=24,
            logprobs=True,
            top_logprobs=3,
            extra_body={"return_token_ids": True},
        )
    (choice,) = reply.choices
    assert choice.message.role == "assistant"
    assert choice.message.content == reference.policy.chat.text(tokens)
    assert choice.finish_reason == ("length" if len(tokens) == 24 else "stop")
    assert reply.prompt_token_ids == prompt and choice.token_ids == tokens
    assert [entry.logprob for entry in choice.logprobs.content] == pytest.approx(logprobs, abs=1e-4)
    for entry in choice.logprobs.content:
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].logprob == entry.logprob  # greedy takes the likeliest
    assert reply.usage.prompt_tokens == len(prompt) and reply.usage.completion_tokens == len(tokens)


def test_bytes_of_the_tokens_make_up_the_text(server: Server) -> None:
    with connect(server) as client:
        reply = client.chat.completions.create(model="tiny", messages=CHAT, seed=3, max_tokens=64, logprobs=True)
    (choice,) = reply.choices
    raw = b"".join(bytes(entry.bytes) for entry in choice.logprobs.content if not entry.token.startswith("<|"))
    assert raw.decode(errors="replace") == choice.message.content


def test_a_stream_says_what_the_whole_reply_says(server: Server) -> None:
    wanted: dict[str, Any] = {"model": "tiny", "messages": CHAT, "seed": 5, "max_tokens": 40, "logprobs": True}
    with connect(server) as client:
        whole = client.chat.completions.create(**wanted, n=2)
        chunks = list(
            client.chat.completions.create(**wanted, n=2, stream=True, stream_options={"include_usage": True})
        )
    assert chunks[-1].choices == [] and chunks[-1].usage.model_dump() == whole.usage.model_dump() | {
        "prompt_tokens_details": chunks[-1].usage.prompt_tokens_details.model_dump()
    }
    for index, choice in enumerate(whole.choices):
        mine = [chunk.choices[0] for chunk in chunks[:-1] if chunk.choices[0].index == index]
        assert "".join(piece.delta.content or "" for piece in mine) == choice.message.content
        assert [p.finish_reason for p in mine if p.finish_reason] == [choice.finish_reason]
        entries = [entry for piece in mine if piece.logprobs for entry in piece.logprobs.content]
        assert [entry.token for entry in entries] == [entry.token for entry in choice.logprobs.content]
    assert whole.choices[0].message.content != whole.choices[1].message.content


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


def test_a_seed_decides_the_text(server: Server) -> None:
    with connect(server) as client:
        texts = [
            client.completions.create(model="tiny", prompt="The quick", seed=seed, max_tokens=30).choices[0].text
            for seed in (1, 1, 2)
        ]
    assert texts[0] == texts[1] != texts[2]


def test_completions_take_texts_and_tokens(server: Server, reference: Reference) -> None:
    texts = ["The quick brown", "user system"]
    ids = [reference.encode(text) for text in texts]
    expected = [reference.policy.chat.text(reference.greedy(prompt, 12)[0]) for prompt in ids]
    with connect(server) as client:
        for prompt in (texts, ids):
            reply = client.completions.create(model="tiny", prompt=prompt, temperature=0, max_tokens=12)
            assert [choice.text for choice in reply.choices] == expected
            assert [choice.index for choice in reply.choices] == [0, 1]
        for one in (texts[0], ids[0]):
            reply = client.completions.create(model="tiny", prompt=one, temperature=0, max_tokens=12)
            assert [choice.text for choice in reply.choices] == expected[:1]


def test_echo_scores_the_prompt(server: Server, reference: Reference) -> None:
    ids = reference.encode("The capital is Paris.")
    with connect(server) as client:
        reply = client.completions.create(model="tiny", prompt=ids, echo=True, logprobs=2, max_tokens=0)
    (choice,) = reply.choices
    assert choice.text == "The capital is Paris."
    assert choice.logprobs.token_logprobs[0] is None
    assert choice.logprobs.token_logprobs[1:] == pytest.approx(reference.score(ids[:1], ids[1:]), abs=1e-4)
    assert "".join(choice.logprobs.tokens) == choice.text


def test_a_stop_string_ends_the_text(server: Server) -> None:
    wanted: dict[str, Any] = {"model": "tiny", "prompt": "The", "seed": 1, "max_tokens": 60}
    with connect(server) as client:
        text = client.completions.create(**wanted).choices[0].text
        stop = text[10:13]
        cut = client.completions.create(**wanted, stop=[stop, "never in it"]).choices[0]
        pieces = [chunk.choices[0] for chunk in client.completions.create(**wanted, stop=stop, stream=True)]
    assert cut.finish_reason == "stop" and cut.text == text[: text.index(stop)]
    assert "".join(piece.text for piece in pieces) == cut.text
    assert pieces[-1].finish_reason == "stop"


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
        (openai.BadRequestError, {"temperature": -1}, "temperature"),
        (openai.BadRequestError, {"messages": []}, "messages"),
        (
            openai.BadRequestError,
            {"messages": [{"role": "user", "content": "a" * 3000}]},
            "maximum context length is 512",
        ),
        (openai.BadRequestError, {"max_tokens": 600}, "maximum context length is 512"),
        (openai.BadRequestError, {"frequency_penalty": 3.0}, "frequency_penalty"),
        (openai.BadRequestError, {"response_format": {"type": "json_schema"}}, "json_schema"),
        (openai.BadRequestError, {"logit_bias": {"5": 101}}, "logit_bias"),
        (openai.BadRequestError, {"tool_choice": "required"}, "tool_choice"),
        (
            openai.BadRequestError,
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]},
            "text",
        ),
    ],
)
def test_errors_are_openais(
    server: Server, kind: type[openai.APIStatusError], change: dict[str, Any], words: str
) -> None:
    with connect(server) as client, pytest.raises(kind, match=words) as caught:
        client.chat.completions.create(**{"model": "tiny", "messages": CHAT, "max_tokens": 4, **change})
    assert caught.value.body["message"] and caught.value.type


def test_giving_up_frees_the_slot(server: Server) -> None:
    async def give_up(stream: bool) -> None:
        async with AsyncOpenAI(base_url=server.v1, api_key="none", max_retries=0) as client:
            endless = {"ignore_eos": True}
            task = asyncio.create_task(
                client.completions.create(
                    model="tiny", prompt="The", max_tokens=500, n=8, stream=stream, extra_body=endless
                )
            )
            if stream:
                async with await task as chunks:
                    async for _ in chunks:
                        break
            else:
                await asyncio.sleep(0.1)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    for stream in (True, False):
        asyncio.run(give_up(stream))
        wait_for(server, "num_requests_running", 0)
        wait_for(server, "num_requests_waiting", 0)


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
