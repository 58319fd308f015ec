"""The `anthropic` package, unmodified, on `/v1/messages`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.inference.clients.parrot import ADD, SUM_ANSWER, SUM_QUESTION
from tests.inference.clients.serving import Server
from tests.inference.server.conftest import serving

anthropic = pytest.importorskip("anthropic", reason="the package anthropic is not installed")

ASK: list[Any] = [{"role": "user", "content": SUM_QUESTION}]
TOOL: Any = {"name": "add", "description": "Add two numbers.", "input_schema": ADD["function"]["parameters"]}
SUM: dict[str, Any] = {"model": "tiny", "max_tokens": 100, "messages": ASK, "extra_body": {"temperature": 0}}


@pytest.fixture
def client(parrot: Server) -> Iterator[Any]:
    with anthropic.Anthropic(base_url=parrot.url, api_key="none", max_retries=0, timeout=60.0) as connected:
        yield connected


def test_text_is_that_of_chat(client: Any, parrot: Server) -> None:
    message = client.messages.create(**SUM)
    assert [block.text for block in message.content] == [SUM_ANSWER]
    assert (message.role, message.stop_reason, message.stop_sequence) == ("assistant", "end_turn", None)
    chat = httpx.post(f"{parrot.v1}/chat/completions", json={"messages": ASK, "temperature": 0}).json()["usage"]
    usage = message.usage
    assert usage.input_tokens + usage.cache_read_input_tokens == chat["prompt_tokens"]
    assert usage.output_tokens == chat["completion_tokens"]
    assert client.messages.count_tokens(model="tiny", messages=ASK).input_tokens == chat["prompt_tokens"]


def test_a_tool_is_used_and_its_result_read(client: Any) -> None:
    first = client.messages.create(**SUM, tools=[TOOL])
    (call,) = first.content
    assert (call.type, call.name, call.input) == ("tool_use", "add", {"a": 20, "b": 22})
    assert first.stop_reason == "tool_use"
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "42"}]}
    messages = [*ASK, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    second = client.messages.create(**SUM | {"messages": messages}, tools=[TOOL])
    assert [block.text for block in second.content] == [SUM_ANSWER]
    unwanted = client.messages.create(**SUM, tools=[TOOL], tool_choice={"type": "none"})
    assert unwanted.content[0].text == SUM_ANSWER
    longer = client.messages.count_tokens(model="tiny", messages=ASK, tools=[TOOL]).input_tokens
    assert longer > client.messages.count_tokens(model="tiny", messages=ASK, system="the dog").input_tokens


@pytest.mark.parametrize("tools", [[], [TOOL]], ids=["text", "call"])
def test_a_stream_adds_up_to_the_whole(client: Any, tools: list[Any]) -> None:
    whole = client.messages.create(**SUM, tools=tools)
    events = list(client.messages.create(**SUM, tools=tools, stream=True))
    kinds = [event.type for event in events]
    assert kinds[:3] == ["message_start", "content_block_start", "content_block_delta"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    with client.messages.stream(**SUM, tools=tools) as stream:
        final = stream.get_final_message()
    plain = [block.model_dump(exclude={"id", "parsed_output"}, exclude_none=True) for block in final.content]
    assert plain == [block.model_dump(exclude={"id"}, exclude_none=True) for block in whole.content]
    assert (final.stop_reason, final.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)


def test_the_end_has_its_reason(client: Any) -> None:
    stopped = client.messages.create(**SUM, stop_sequences=["42", " is", "never"])
    assert (stopped.content[0].text, stopped.stop_reason, stopped.stop_sequence) == ("It", "stop_sequence", " is")
    cut = client.messages.create(**SUM | {"max_tokens": 2})
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 2)


def test_a_reply_goes_on_with_the_assistants_last_message(client: Any) -> None:
    message = client.messages.create(**SUM | {"messages": [*ASK, {"role": "assistant", "content": "It is"}]})
    assert message.content[0].text == SUM_ANSWER.removeprefix("It is")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"max_tokens": 5000}, "maximum context length"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "type image"),
        ({"messages": [{"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}]}]}, "type thinking"),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]}]},
            "ha",
        ),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "bash_20250124"),
        ({"tool_choice": {"type": "tool"}, "tools": [TOOL]}, "name"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking"),
        ({"extra_body": {"frequency_penalty": 1}}, "frequency_penalty"),
    ],
)
def test_what_is_not_here_is_refused_by_name(client: Any, change: dict[str, Any], words: str) -> None:
    with pytest.raises(anthropic.BadRequestError, match=words) as caught:
        client.messages.create(**SUM | change)
    assert caught.value.body["type"] == "error" and caught.value.body["error"]["type"] == "invalid_request_error"


def test_other_errors_are_anthropics_too(client: Any, tiny_dir: Path) -> None:
    with pytest.raises(anthropic.NotFoundError, match="gpt-9"):
        client.messages.create(**SUM | {"model": "gpt-9"})
    with serving(tiny_dir, api_key="secret") as server:
        for key, token, is_right in (("secret", None, True), (None, "secret", True), ("wrong", None, False)):
            asked = anthropic.Anthropic(base_url=server.address, api_key=key, auth_token=token, max_retries=0)
            if is_right:
                assert asked.messages.create(**SUM | {"max_tokens": 1}).stop_reason == "max_tokens"
                continue
            with pytest.raises(anthropic.AuthenticationError) as caught:
                asked.messages.create(**SUM)
            assert caught.value.body["error"]["type"] == "authentication_error"
