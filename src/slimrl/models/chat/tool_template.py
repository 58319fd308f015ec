"""Finds out if a chat template writes tools, calls and results, and the form in which it writes calls."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, cast

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from slimrl.models.chat.call_forms import FORMS
from slimrl.models.chat.call_reader import CallReader
from slimrl.types import Message

# Exceptions that templates raise for unexpected conversations.
TEMPLATE_ERRORS = (TemplateError, TypeError, ValueError, KeyError, AttributeError, ArithmeticError, RecursionError)
CALL_ID = "000000000"  # Mistral's templates need ids of nine characters
# Names that are unlikely in a template, and names in Python too.
TOOL, CALL, KEY, RESULT = (f"slimrl_marker_{part}" for part in ("tool", "name", "key", "result"))
TOOLS = [{"type": "function", "function": {"name": TOOL, "description": "", "parameters": {"type": "object"}}}]


def call_object(name: str, arguments: Any) -> dict[str, Any]:
    """Return a call in the form that templates take."""
    return {"id": CALL_ID, "type": "function", "function": {"name": name, "arguments": arguments}}


CONVERSATION: list[dict[str, Any]] = [
    {"role": "user", "content": "question"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [call_object(CALL, {KEY: 1})],
    },
    {"role": "tool", "tool_call_id": CALL_ID, "content": RESULT},
]


def render_tools(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """Return the chat template's text for a conversation with a tool, a call and its result. Return None if the
    template raises an error or omits one of them."""
    text = _render(tokenizer, CONVERSATION)
    return text if all(part in text for part in (TOOL, CALL, KEY, RESULT)) else None


def form_of(tokenizer: PreTrainedTokenizerBase, end_of_turn: str) -> str:
    """Return the name of the form in which the chat template writes calls; empty if it writes none, or in an unknown
    form. `end_of_turn` is the text that ends a turn."""
    text = render_tools(tokenizer)
    if text is None:
        return ""
    # The reply follows the generation prompt. A template may write more into a generation prompt, such as thoughts.
    pairs = zip(text, _render(tokenizer, CONVERSATION[:1], generate=True), strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    begin = 1 + max(text.rfind(end, 0, shared) for end in ">]\n ")
    reply = text[begin:].partition(end_of_turn)[0]
    return next((name for name in FORMS if _reads(name, reply)), "")


def _reads(form: str, reply: str) -> bool:
    return [(call.name, call.values) for call in CallReader(form).read(reply, ()).calls] == [(CALL, {KEY: 1})]


def _render(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, Any]], generate: bool = False) -> str:
    """Return the text of messages with a tool; empty if the template raises an error."""
    try:
        text = tokenizer.apply_chat_template(
            cast(Any, messages), tools=cast(Any, TOOLS), tokenize=False, add_generation_prompt=generate
        )
    except TEMPLATE_ERRORS:
        return ""
    return cast(str, text)


def with_written_calls(messages: Sequence[Message], reader: CallReader) -> list[Message]:
    """Return a conversation to learn from, with the calls in the texts of its replies in the form that is read.

    Scripts write the form `hermes`, and sampled replies have the form of the template. A template writes its own form
    from `tool_calls`.
    """
    if reader.form_to_write == "hermes" or "tools" not in messages[0]:
        return [*messages]
    return [_with_written_calls(message, reader) for message in messages]


def _with_written_calls(message: Message, reader: CallReader) -> Message:
    if message["role"] != "assistant" or "tool_calls" in message:
        return message
    readings = [CallReader(form).read(message["content"], ()) for form in (reader.own, "hermes")]
    reading = next((one for one in readings if one.calls), readings[0])
    if not reading.calls or not all(isinstance(call.values, dict) for call in reading.calls):
        return message
    text = "".join(part for part in reading.parts if isinstance(part, str))
    if reader.form_to_write != reader.own:
        return {**message, "content": f"{text}\n{FORMS[reader.form_to_write].write(reading.calls)}".lstrip("\n")}
    return {**message, "content": text, "tool_calls": [call_object(call.name, call.values) for call in reading.calls]}
