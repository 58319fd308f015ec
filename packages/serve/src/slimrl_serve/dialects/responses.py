"""Formats `/v1/responses` of OpenAI: translates a body to a chat request, and the reply to a response."""

import time
from collections.abc import Sequence
from typing import Any

from slimrl_serve.bodies import ChatBody
from slimrl_serve.chat import open_chat
from slimrl_serve.dialects.response_bodies import (
    LOGPROBS,
    CallItem,
    MessageItem,
    ResponseBody,
    ResultItem,
    TextPart,
)
from slimrl_serve.dialects.response_events import ResponseWriter
from slimrl_serve.dialects.response_store import ResponseStore
from slimrl_serve.dialects.translation import Plain, Translated, call, chat_body, function, with_system
from slimrl_serve.errors import bad_request
from slimrl_serve.opened import new_id
from slimrl_serve.service import Service

# Names of a chat request's fields, with the names of the same fields in a response's body.
NAMES = {"response_format": "text.format", "max_completion_tokens": "max_output_tokens", "messages": "input"}


async def open_response(service: Service, store: ResponseStore, body: ResponseBody) -> Translated:
    """Check and tokenize a request; its choices are not queued yet. Raises ApiError if it is invalid."""
    before: list[Plain] | None = []
    if body.previous_response_id is not None and (before := store.messages(body.previous_response_id)) is None:
        raise bad_request(
            f"The response `{body.previous_response_id}` is not kept here: it was not stored, or it was long ago. Send "
            "the conversation as `input`.",
            "previous_response_id",
            "previous_response_not_found",
        )
    items = [MessageItem(role="user", content=body.input)] if isinstance(body.input, str) else body.input
    messages = [*(before or []), *_messages(items)]
    chat = await open_chat(service, _chat_body(body, messages))

    def keep(response: Plain) -> None:
        if body.store is not False:
            store.add(response, [*messages, _output_message(response["output"])])

    return Translated(chat.generation, chat, ResponseWriter(_head(body, chat.name), keep))


def _chat_body(body: ResponseBody, messages: list[Plain]) -> ChatBody:
    tells_logprobs = body.top_logprobs is not None or LOGPROBS in (body.include or [])
    choice: Any = body.tool_choice
    if choice is not None and not isinstance(choice, str):
        choice = {"type": "function", "function": {"name": choice.name}}
    content = body.model_dump(
        include={"model", "stream", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "parallel_tool_calls"}
    )
    tools = [function(tool.name, tool.description, tool.parameters, tool.strict) for tool in body.tools or []]
    content |= {
        "messages": with_system([body.instructions or ""], messages),
        "max_completion_tokens": body.max_output_tokens,
        "logprobs": tells_logprobs or None,
        "top_logprobs": body.top_logprobs,
        "tools": tools or None,
        "tool_choice": choice,
        "response_format": _format(body),
    }
    return chat_body(content, NAMES)


def _format(body: ResponseBody) -> Plain | None:
    """Return the form of the text as in a chat request."""
    given = body.text.format if body.text else None
    if given is None or given.get("type") != "json_schema":
        return given
    return {"type": "json_schema", "json_schema": {name: value for name, value in given.items() if name != "type"}}


def _messages(items: Sequence[MessageItem | CallItem | ResultItem]) -> list[Plain]:
    """Return the chat messages of items. Calls are added to the message before them if it is the model's; the model's
    text after calls is added to the message with the calls."""
    messages: list[Plain] = []
    for item in items:
        match item:
            case MessageItem() if item.role == "assistant" and messages and "tool_calls" in messages[-1]:
                messages[-1]["content"] += _text(item.content)
            case MessageItem():
                messages.append({"role": item.role, "content": _text(item.content)})
            case ResultItem():
                messages.append({"role": "tool", "tool_call_id": item.call_id, "content": _text(item.output)})
            case CallItem():
                if not messages or messages[-1]["role"] != "assistant":
                    messages.append({"role": "assistant", "content": ""})
                calls = messages[-1].setdefault("tool_calls", [])
                calls.append(call(item.call_id, item.name, item.arguments))
    return messages


def _text(content: str | Sequence[TextPart]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


def _output_message(output: Sequence[Plain]) -> Plain:
    """Return an output as a chat message."""
    texts = [item["content"][0]["text"] for item in output if item["type"] == "message"]
    calls = [
        call(item["call_id"], item["name"], item["arguments"]) for item in output if item["type"] == "function_call"
    ]
    return {"role": "assistant", "content": "".join(texts)} | ({"tool_calls": calls} if calls else {})


def _head(body: ResponseBody, name: str) -> Plain:
    """Return the response before it has any output."""
    choice: Any = body.tool_choice or "auto"
    return {
        "id": new_id("resp"),
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "model": name,
        "output": [],
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "reasoning": {"effort": None, "summary": None},
        "store": body.store is not False,
        "temperature": 1.0 if body.temperature is None else body.temperature,
        "text": {"format": (body.text and body.text.format) or {"type": "text"}},
        "tool_choice": choice if isinstance(choice, str) else choice.model_dump(),
        "tools": [{**tool.model_dump(), "strict": bool(tool.strict)} for tool in body.tools or []],
        "top_logprobs": body.top_logprobs or 0,
        "top_p": 1.0 if body.top_p is None else body.top_p,
        "truncation": "disabled",
        "metadata": body.metadata or {},
        "usage": None,
    }
