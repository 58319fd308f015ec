"""Tool calls in replies: those that the model meant, whole, streamed or not, and none that it only considered."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, cast

import httpx
import pytest

from packages.serve.tests.test_chat import CHAT, MESSAGES, TOOLS, chat
from slimrl_serve.bodies import ChatBody
from slimrl_serve.chat import Chat


def call_of(query: str) -> str:
    return f"<tool_call>{json.dumps({'name': 'search_pages', 'arguments': {'query': query}})}</tool_call>"


TAG = "what the tag </tool_call> is for"
THOUGHTS = f"<think>\nI could call {call_of('draft')} first, but no.\n</think>"


@dataclass
class SampledText:
    """A choice whose text is known, one token a character."""

    text: str
    index: int = 0
    shown: int = 0
    told: int = 0
    finish_reason: str = "stop"
    token_ids: list[int] = field(default_factory=list)

    def text_so_far(self, done: bool) -> str:
        return self.text[: len(self.token_ids)]


@dataclass
class Sampling:
    """Gives the text in pieces of `step` characters, or at once."""

    choice: SampledText
    step: int
    request_id: str = "1"

    def usage(self) -> dict[str, int]:
        return {}

    @property
    def choices(self) -> list[SampledText]:
        return [self.choice]

    async def finish(self) -> None:
        self.choice.token_ids = [0] * len(self.choice.text)

    async def changes(self) -> AsyncIterator[tuple[SampledText, bool]]:
        while len(self.choice.token_ids) < len(self.choice.text):
            self.choice.token_ids += [0] * min(self.step, len(self.choice.text) - len(self.choice.token_ids))
            yield self.choice, len(self.choice.token_ids) == len(self.choice.text)


def reply_to(text: str, step: int, in_thoughts: bool) -> tuple[str, list[str], str]:
    """The content, the queries of the calls and the finish reason; `step` 0 is a reply in one piece."""
    body = ChatBody.model_validate({"messages": MESSAGES, "tools": TOOLS})
    sampling = cast(Any, Sampling(SampledText(text), step))
    asked = Chat(sampling, cast(Any, None), body, "tiny", in_thoughts)
    if not step:
        (choice,) = asyncio.run(asked.whole())["choices"]
        message = choice["message"]
        pieces, reason = [{"content": message["content"], "tool_calls": message.get("tool_calls", [])}], choice
    else:

        async def chunks() -> list[dict[str, Any]]:
            return [chunk["choices"][0] async for chunk in asked.chunks()]

        streamed = asyncio.run(chunks())
        pieces, reason = [chunk["delta"] for chunk in streamed], streamed[-1]
    calls = [call["function"] for piece in pieces for call in piece.get("tool_calls", [])]
    content = "".join(piece.get("content") or "" for piece in pieces)
    return content, [json.loads(call["arguments"])["query"] for call in calls], reason["finish_reason"]


@pytest.mark.parametrize("step", [0, 1, 4, 1000])
@pytest.mark.parametrize(
    ("text", "in_thoughts", "content", "queries"),
    [
        (call_of(TAG), False, "", [TAG]),
        (f"So: {call_of(TAG)}{call_of('b')}", False, "So:", [TAG, "b"]),
        (f"{THOUGHTS}\n{call_of('meant')}", False, THOUGHTS, ["meant"]),
        (f"{THOUGHTS.removeprefix('<think>')}{call_of('meant')}", True, THOUGHTS.removeprefix("<think>"), ["meant"]),
        (f"{THOUGHTS}\n{call_of('a </think> b')}", False, THOUGHTS, ["a </think> b"]),
        (f"{THOUGHTS}\nParis", False, f"{THOUGHTS}\nParis", []),
        (f"<think>{call_of('draft')}", False, f"<think>{call_of('draft')}", []),
    ],
)
def test_the_calls_of_a_reply_are_those_that_were_meant(
    text: str, in_thoughts: bool, content: str, queries: list[str], step: int
) -> None:
    assert reply_to(text, step, in_thoughts) == (content, queries, "tool_calls" if queries else "stop")


@pytest.mark.parametrize("arguments", ['{"a": 1', "[1]", None, "", '"{\\"a\\": 1}"', [1], 3, True])
def test_a_history_with_arguments_that_are_no_object_is_answered(http: httpx.Client, arguments: Any) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": arguments}}
    called = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "Error: no object"}
    reply = chat(http, CHAT, messages=[*MESSAGES, called, result], tools=TOOLS, max_tokens=1, return_token_ids=True)
    prompt = http.post("/detokenize", json={"tokens": reply["prompt_token_ids"]}).json()["prompt"]
    shown = arguments if isinstance(arguments, str) else json.dumps(arguments)
    assert f'"arguments": {shown if arguments not in (None, "") else "{}"}' in prompt
