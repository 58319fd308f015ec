"""Formats `/v1/messages`: translates a body to a chat request, and the reply to a message."""

import json
from collections.abc import Sequence

from slimrl_serve.bodies import ChatBody, TokenizeBody
from slimrl_serve.chat import open_chat
from slimrl_serve.dialects.message_bodies import (
    CountBody,
    InputMessage,
    MessagesBody,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from slimrl_serve.dialects.message_events import MessageWriter, counts_of
from slimrl_serve.dialects.translation import Plain, Translated, call, chat_body, function, with_system
from slimrl_serve.errors import bad_request
from slimrl_serve.opened import new_id
from slimrl_serve.service import Service
from slimrl_serve.tokens import tokenize

# Names of a chat request's fields, with the names of the same fields in a message's body.
NAMES = {
    "response_format": "output_config.format",
    "parallel_tool_calls = false": "tool_choice.disable_parallel_tool_use = true",
    "parallel_tool_calls": "tool_choice",
}
CHOICES = {"auto": "auto", "any": "required", "none": "none"}


async def open_message(service: Service, body: MessagesBody) -> Translated:
    """Check and tokenize a request; its choices are not queued yet. Raises ApiError if it is invalid."""
    chat = await open_chat(service, _chat_body(body))
    head: Plain = {
        "id": new_id("msg"),
        "type": "message",
        "role": "assistant",
        "model": chat.name,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": counts_of(len(chat.prompt), 0),
    }
    return Translated(chat.generation, chat, MessageWriter(head, body.stop_sequences or []))


async def count_tokens(service: Service, body: CountBody) -> Plain:
    """Return the number of tokens of a prompt."""
    content = {name: value for name, value in _prompt(body).items() if name != "tool_choice"}
    asked = chat_body(content, NAMES)  # with the checks of `/tokenize`
    counted = await tokenize(
        service,
        TokenizeBody(
            model=asked.model,
            messages=asked.messages,
            tools=[] if body.tool_choice and body.tool_choice.type == "none" else asked.tools,
            continue_final_message=asked.continue_final_message,
        ),
    )
    return {"input_tokens": counted["count"]}


def _chat_body(body: MessagesBody) -> ChatBody:
    content = body.model_dump(include={"max_tokens", "stream", "temperature", "top_p", "top_k", "min_p", "seed"})
    content |= _prompt(body) | {"stop": body.stop_sequences}
    if body.tool_choice and body.tool_choice.disable_parallel_tool_use:
        content["parallel_tool_calls"] = False
    if body.output_config and body.output_config.format is not None:
        content["response_format"] = _format(body.output_config.format)
    return chat_body(content, NAMES)


def _prompt(body: CountBody) -> Plain:
    """Return the fields of a chat request that determine its prompt."""
    messages = [written for message in body.messages for written in _messages(message)]
    continues = messages[-1]["role"] == "assistant"
    if continues and "tool_calls" in messages[-1]:
        raise bad_request("The last message calls tools; send their results after it.", "messages")
    return {
        "model": body.model,
        "messages": with_system([_text(body.system)], messages),
        "tools": [function(tool.name, tool.description, tool.input_schema, tool.strict) for tool in body.tools or []]
        or None,
        "tool_choice": _choice(body),
        "continue_final_message": continues or None,
    }


def _choice(body: CountBody) -> Plain | str | None:
    """Return the choice of tools in the form of a chat request."""
    choice = body.tool_choice
    if choice is None:
        return None
    if choice.type != "tool":
        return CHOICES[choice.type]
    if not choice.name:
        raise bad_request('tool_choice: the type "tool" needs the tool\'s name.', "tool_choice")
    return {"type": "function", "function": {"name": choice.name}}


def _format(given: Plain) -> Plain:
    """Return the form of the text as in a chat request, where a schema has a name."""
    if given.get("type") != "json_schema":
        return given
    return {"type": "json_schema", "json_schema": {"name": "output", "schema": given.get("schema"), "strict": True}}


def _messages(message: InputMessage) -> list[Plain]:
    """Return the chat messages of one message. Results become separate messages before its text."""
    if isinstance(message.content, str):
        return [{"role": message.role, "content": message.content}]
    texts, calls, results = [], list[Plain](), list[Plain]()
    for block in message.content:
        match block:
            case TextBlock():
                texts.append(block.text)
            case ToolUseBlock():
                calls.append(call(block.id, block.name, json.dumps(block.input, ensure_ascii=False)))
            case ToolResultBlock():
                results.append({"role": "tool", "tool_call_id": block.tool_use_id, "content": _text(block.content)})
    if (calls and message.role == "user") or (results and message.role == "assistant"):
        raise bad_request("messages: the assistant has tool_use blocks, the user has tool_result blocks.", "messages")
    if results and not texts:
        return results
    return [*results, {"role": message.role, "content": "\n".join(texts)} | ({"tool_calls": calls} if calls else {})]


def _text(content: str | Sequence[TextBlock] | None) -> str:
    return content or "" if isinstance(content, str | None) else "\n".join(block.text for block in content)
