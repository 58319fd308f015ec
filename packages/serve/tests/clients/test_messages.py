"""`/v1/messages` by plain HTTP, as its clients ask."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from packages.serve.tests.clients.parrot import ADD, SUM_ANSWER, SUM_QUESTION
from packages.serve.tests.clients.serving import Server
from packages.serve.tests.conftest import serving

pytestmark = pytest.mark.slow

ASK: list[Any] = [{"role": "user", "content": SUM_QUESTION}]
TOOL: Any = {"name": "add", "description": "Add two numbers.", "input_schema": ADD["function"]["parameters"]}
SUM: dict[str, Any] = {"model": "tiny", "max_tokens": 100, "messages": ASK, "temperature": 0}


def create(server: Server, **changes: Any) -> dict[str, Any]:
    reply = httpx.post(f"{server.v1}/messages", json=SUM | changes, timeout=60.0)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def count(server: Server, **changes: Any) -> int:
    body = {"model": "tiny", "messages": ASK, **changes}
    return int(httpx.post(f"{server.v1}/messages/count_tokens", json=body, timeout=60.0).json()["input_tokens"])


def events_of(server: Server, **changes: Any) -> list[dict[str, Any]]:
    """The events of a stream, each of which has the name that its data has as `type`."""
    text = httpx.post(f"{server.v1}/messages", json=SUM | {"stream": True} | changes, timeout=60.0).text
    found = []
    for event in text.strip().split("\n\n"):
        name, data = event.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def refusal(reply: httpx.Response, status: int, kind: str) -> str:
    body = reply.json()
    assert (reply.status_code, body["type"], body["error"]["type"]) == (status, "error", kind)
    return str(body["error"]["message"])


def test_text_is_that_of_chat(parrot: Server) -> None:
    message = create(parrot)
    assert message["content"] == [{"type": "text", "text": SUM_ANSWER}]
    assert (message["role"], message["stop_reason"], message["stop_sequence"]) == ("assistant", "end_turn", None)
    chat = httpx.post(f"{parrot.v1}/chat/completions", json={"messages": ASK, "temperature": 0}).json()["usage"]
    usage = message["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == chat["prompt_tokens"]
    assert usage["output_tokens"] == chat["completion_tokens"]
    assert count(parrot) == chat["prompt_tokens"]


def test_a_tool_is_used_and_its_result_read(parrot: Server) -> None:
    first = create(parrot, tools=[TOOL])
    (call,) = first["content"]
    assert (call["type"], call["name"], call["input"]) == ("tool_use", "add", {"a": 20, "b": 22})
    assert first["stop_reason"] == "tool_use"
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": "42"}]}
    messages = [*ASK, {"role": "assistant", "content": first["content"]}, {"role": "user", "content": [result]}]
    second = create(parrot, messages=messages, tools=[TOOL])
    assert [block["text"] for block in second["content"]] == [SUM_ANSWER]
    unwanted = create(parrot, tools=[TOOL], tool_choice={"type": "none"})
    assert unwanted["content"][0]["text"] == SUM_ANSWER
    assert count(parrot, tools=[TOOL]) > count(parrot, system="the dog")


@pytest.mark.parametrize("tools", [[], [TOOL]], ids=["text", "call"])
def test_a_stream_adds_up_to_the_whole(parrot: Server, tools: list[Any]) -> None:
    whole, events = create(parrot, tools=tools), events_of(parrot, tools=tools)
    kinds = [event["type"] for event in events]
    assert kinds[:3] == ["message_start", "content_block_start", "content_block_delta"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    text = "".join(delta.get("text", "") + delta.get("partial_json", "") for delta in deltas)
    (block,) = whole["content"]
    assert (json.loads(text) if tools else text) == block["input" if tools else "text"]
    ending = events[-2]
    assert ending["delta"]["stop_reason"] == whole["stop_reason"]
    assert ending["usage"]["output_tokens"] == whole["usage"]["output_tokens"]


def test_the_end_has_its_reason(parrot: Server) -> None:
    stopped = create(parrot, stop_sequences=["42", " is", "never"])
    assert stopped["content"][0]["text"] == "It"
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", " is")
    cut = create(parrot, max_tokens=2)
    assert (cut["stop_reason"], cut["usage"]["output_tokens"]) == ("max_tokens", 2)


def test_a_reply_goes_on_with_the_assistants_last_message(parrot: Server) -> None:
    message = create(parrot, messages=[*ASK, {"role": "assistant", "content": "It is"}])
    assert message["content"][0]["text"] == SUM_ANSWER.removeprefix("It is")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"max_tokens": 5000}, "maximum context length"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "'image'"),
        ({"messages": [{"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}]}]}, "'thinking'"),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]}]},
            "the assistant has tool_use blocks",
        ),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools.0.type"),
        ({"tool_choice": {"type": "tool"}, "tools": [TOOL]}, "name"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking"),
        ({"frequency_penalty": 1}, "frequency_penalty"),
    ],
)
def test_what_is_not_here_is_refused_by_name(parrot: Server, change: dict[str, Any], words: str) -> None:
    reply = httpx.post(f"{parrot.v1}/messages", json=SUM | change, timeout=60.0)
    assert words in refusal(reply, 400, "invalid_request_error")


def test_other_errors_have_the_same_form(parrot: Server, tiny_dir: Path) -> None:
    unknown = httpx.post(f"{parrot.v1}/messages", json=SUM | {"model": "gpt-9"})
    assert "gpt-9" in refusal(unknown, 404, "not_found_error")
    with serving(tiny_dir, api_key="secret") as server:
        url, body = f"{server.address}/v1/messages", SUM | {"max_tokens": 1}
        for headers in ({"x-api-key": "secret"}, {"Authorization": "Bearer secret"}):
            assert httpx.post(url, json=body, headers=headers).json()["stop_reason"] == "max_tokens"
        refusal(httpx.post(url, json=body, headers={"x-api-key": "wrong"}), 401, "authentication_error")
