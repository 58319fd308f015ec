"""The `openai` package, unmodified, on `/v1/responses`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from packages.serve.tests.clients.parrot import ADD, SUM_ANSWER, SUM_QUESTION
from packages.serve.tests.clients.serving import Server
from packages.serve.tests.conftest import serving
from slimrl_serve.dialects.response_store import ResponseStore

pytestmark = pytest.mark.slow

FUNCTION: Any = {"type": "function", **ADD["function"]}
SUM: dict[str, Any] = {"model": "tiny", "input": SUM_QUESTION, "temperature": 0}


@pytest.fixture
def client(parrot: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=parrot.v1, api_key="none", max_retries=0, timeout=60.0) as connected:
        yield connected


def test_text_is_that_of_chat(client: OpenAI) -> None:
    reply = client.responses.create(**SUM, metadata={"a": "b"})
    assert reply.output_text == SUM_ANSWER and reply.status == "completed"
    assert reply.metadata == {"a": "b"} and reply.usage
    messages: list[Any] = [{"role": "user", "content": SUM_QUESTION}]
    chat = client.chat.completions.create(model="tiny", messages=messages, temperature=0)
    assert chat.usage and reply.usage.total_tokens == chat.usage.total_tokens
    parsed = client.responses.parse(**SUM)
    assert parsed.output_text == SUM_ANSWER


def test_a_function_is_called_and_its_result_read(client: OpenAI) -> None:
    first = client.responses.create(**SUM, tools=[FUNCTION])
    (call,) = first.output
    assert call.type == "function_call" and json.loads(call.arguments) == {"a": 20, "b": 22}
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "42"}
    follow: dict[str, Any] = {"model": "tiny", "temperature": 0, "tools": [FUNCTION]}
    by_id = client.responses.create(**follow, previous_response_id=first.id, input=[result])
    whole: Any = [{"role": "user", "content": SUM_QUESTION}, call.model_dump(exclude_none=True), result]
    by_items = client.responses.create(**follow, input=whole, store=False)
    assert by_id.output_text == by_items.output_text == SUM_ANSWER
    assert client.responses.retrieve(by_id.id) == by_id
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(by_items.id)
    client.responses.delete(first.id)
    with pytest.raises(openai.BadRequestError, match="not kept") as caught:
        client.responses.create(**follow, previous_response_id=first.id, input=[result])
    assert caught.value.code == "previous_response_not_found"


def test_instructions_come_first_and_are_not_kept(client: OpenAI, parrot: Server) -> None:
    def tokens(**extra: Any) -> int:
        reply = client.responses.create(model="tiny", max_output_tokens=1, temperature=0, **extra)
        assert reply.usage and reply.status == "incomplete"
        assert reply.incomplete_details and reply.incomplete_details.reason == "max_output_tokens"
        last.append(reply.id)
        return reply.usage.input_tokens

    last: list[str] = []
    told = tokens(input=[{"role": "developer", "content": "the dog"}, {"role": "user", "content": "fox"}])
    assert tokens(input="fox", instructions="the dog") == told
    kept = tokens(input="fox", previous_response_id=last[-1])
    assert kept < tokens(input="fox", previous_response_id=last[-2], instructions="the dog and the fox")


@pytest.mark.parametrize("tools", [[], [FUNCTION]], ids=["text", "call"])
def test_a_stream_adds_up_to_the_whole(client: OpenAI, tools: list[Any]) -> None:
    whole = client.responses.create(**SUM, tools=tools)
    with client.responses.stream(**SUM, tools=tools) as stream:
        events = list(stream)
        final = stream.get_final_response()
    kinds = [event.type for event in events]
    assert kinds[:3] == ["response.created", "response.in_progress", "response.output_item.added"]
    assert kinds[-2:] == ["response.output_item.done", "response.completed"]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    texts = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert texts == final.output_text == whole.output_text == ("" if tools else SUM_ANSWER)
    calls = "".join(event.delta for event in events if event.type == "response.function_call_arguments.delta")
    assert calls == "".join(item.arguments for item in whole.output if item.type == "function_call")
    assert client.responses.retrieve(final.id).output_text == whole.output_text


def test_log_probabilities_are_those_of_the_tokens(client: OpenAI) -> None:
    whole = client.responses.create(**SUM, include=["message.output_text.logprobs"], top_logprobs=2)
    part: Any = whole.output[0]
    entries = part.content[0].logprobs
    assert len(entries) == whole.usage.output_tokens if whole.usage else 0
    assert all(len(entry.top_logprobs) == 2 for entry in entries)
    events = client.responses.create(**SUM, top_logprobs=2, stream=True)
    streamed = [entry for e in events if e.type == "response.output_text.delta" for entry in e.logprobs]
    assert [entry.logprob for entry in streamed] == pytest.approx([entry.logprob for entry in entries], abs=1e-4)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}]}, "input"),
        ({"input": [{"type": "reasoning", "id": "rs_1", "summary": []}]}, "input"),
        ({"input": [{"type": ["message"], "role": "user", "content": ""}]}, "input"),
        ({"input": []}, "input"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format"),
        ({"reasoning": {"effort": "high"}}, "reasoning"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"truncation": "auto"}, "truncation"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": 5000}, None),
        ({"input": "a" * 20_000}, None),
    ],
)
def test_what_is_not_here_is_refused_by_name(client: OpenAI, change: dict[str, Any], param: str | None) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(**{**SUM, **change})
    assert caught.value.param == param and caught.value.body


def test_a_model_of_another_name_is_not_found(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="gpt-9"):
        client.responses.create(model="gpt-9", input="a")


def test_models_with_slashes_are_retrieved(tiny_dir: Path) -> None:
    with (
        serving(tiny_dir, served_model_name="organisation/tiny") as server,
        OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as client,
    ):
        assert client.models.retrieve("organisation/tiny").id == "organisation/tiny"
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("organisation/other")


def test_the_store_keeps_the_last_within_its_bounds() -> None:
    store = ResponseStore(max_responses=3, max_bytes=10_000)
    for number in range(5):
        store.add({"id": str(number)}, [{"content": "a"}])
    assert [number for number in range(5) if store.response(str(number))] == [2, 3, 4]
    assert store.messages("4") == [{"content": "a"}]
    store.add({"id": "long"}, [{"content": "a" * 9_950}])
    assert [id for id in ("2", "3", "4", "long") if store.response(id)] == ["long"]
    store.add({"id": "too long"}, [{"content": "a" * 10_000}])
    assert store.response("too long") is store.messages("long") is None
    assert not store.remove("long")
