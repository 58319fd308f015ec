"""Tool calls in the text of a reply, `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, and whether a chat
template writes them so.

Reads the text as it grows, so that a streamed reply shows neither tags nor half of one. What is no well-formed call
stays text. Knows nothing of which tools there are: a call of an unknown one is its reader's to answer.
"""

import json
import uuid
from dataclasses import dataclass
from typing import Any, cast

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from slimrl.io.text import is_writable, partial_mark_length

OPEN, CLOSE = "<tool_call>", "</tool_call>"
MARKER = "slimrl@marker@"
# What templates raise when a conversation is not as they expect it.
TEMPLATE_ERRORS = (TemplateError, TypeError, ValueError, KeyError, AttributeError, ArithmeticError, RecursionError)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as OpenAI writes it; `arguments` is JSON."""

    id: str
    name: str
    arguments: str


class ToolReader:
    """Parts a growing reply into text and calls. White space around calls belongs to neither."""

    def __init__(self) -> None:
        self._at = 0
        self._space = ""  # white space that is text only if text follows
        self.num_calls = 0

    def read(self, reply: str, closed: bool) -> list[str | ToolCall]:
        """What is new, in order; `reply` is all of it so far, `closed` says that no more will come."""
        found: list[str | ToolCall] = []
        while self._at < len(reply):
            start = reply.find(OPEN, self._at)
            if start < 0:
                end = len(reply) if closed else len(reply) - partial_mark_length(reply[self._at :], [OPEN])
                self._take_text(reply[self._at : end], found)
                self._at = end
                break
            self._take_text(reply[self._at : start], found)
            self._at = start
            end = reply.find(CLOSE, start)
            if end < 0 and not closed:
                break
            call = _parse(reply[start + len(OPEN) : end]) if end >= 0 else None
            behind = end + len(CLOSE) if end >= 0 else len(reply)
            if call is None:
                self._take_text(reply[start:behind], found)
            else:
                self.num_calls += 1
                self._space = ""
                found.append(call)
            self._at = behind
        if closed and not self.num_calls and self._space:
            found.append(self._space)
            self._space = ""
        return found

    def _take_text(self, text: str, found: list[str | ToolCall]) -> None:
        solid = text.rstrip()
        if solid:
            found.append(self._space + solid)
            self._space = text[len(solid) :]
        else:
            self._space += text


def _parse(text: str) -> ToolCall | None:
    try:
        call = json.loads(text)
        if not is_writable(call):
            return None
    except (ValueError, RecursionError):
        return None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None
    arguments = call.get("arguments", {})
    if not isinstance(arguments, (dict, str)):
        return None
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ToolCall(f"call_{uuid.uuid4().hex}", call["name"], written)


def rendered_tools(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """A tool, a call of it and its result, all made of markers, as the chat template writes them; None if it refuses
    them, or leaves something out."""
    function = {"name": f"{MARKER}tool", "description": "", "parameters": {"type": "object", "properties": {}}}
    call = {"name": f"{MARKER}name", "arguments": {f"{MARKER}key": "value"}}
    conversation: list[dict[str, Any]] = [
        {"role": "user", "content": "question"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "0", "type": "function", "function": call}]},
        {"role": "tool", "tool_call_id": "0", "content": f"{MARKER}result"},
    ]
    tools: list[Any] = [{"type": "function", "function": function}]
    try:
        text = cast(str, tokenizer.apply_chat_template(cast(Any, conversation), tools=tools, tokenize=False))
    except TEMPLATE_ERRORS:
        return None
    return text if all(f"{MARKER}{part}" in text for part in ("tool", "name", "key", "result")) else None


def tool_trouble(tokenizer: PreTrainedTokenizerBase) -> str:
    """What keeps a policy with this chat template from calling tools, in words; empty if nothing does."""
    text = rendered_tools(tokenizer)
    if text is None:
        return "does not write tools, calls of them and their results"
    calls = [part for part in ToolReader().read(text, closed=True) if isinstance(part, ToolCall)]
    if [(call.name, json.loads(call.arguments)) for call in calls] != [(f"{MARKER}name", {f"{MARKER}key": "value"})]:
        return f'writes calls of tools in another form than {OPEN}{{"name": ..., "arguments": {{...}}}}{CLOSE}'
    return ""
