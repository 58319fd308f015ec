"""Parses tool calls, `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, in replies and in chat templates.

`ToolReader` reads a reply while it grows, so that a streamed reply shows neither a tag nor part of a tag. A malformed
call stays text, and so does a call inside thoughts. The parser does not know which tools exist: the caller must answer
calls of unknown tools.
"""

import json
import re
import uuid
from dataclasses import dataclass
from typing import Any, cast

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from slimrl.io.text import is_writable, partial_mark_length
from slimrl.models.chat.tags import CALL, CLOSE, CLOSE_THOUGHTS, OPEN, OPEN_THOUGHTS
from slimrl.models.chat.thoughts import begins_in_thoughts

MARKER = "slimrl@marker@"
# Exceptions that templates raise for unexpected conversations.
TEMPLATE_ERRORS = (TemplateError, TypeError, ValueError, KeyError, AttributeError, ArithmeticError, RecursionError)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call in OpenAI's form; `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


class ToolReader:
    """A parser that splits a growing reply into text and tool calls, without the white space around calls.
    `in_thoughts` means that the prompt has already opened thoughts."""

    def __init__(self, in_thoughts: bool = False) -> None:
        self._at = 0  # characters of the reply read so far
        self._searched = 0  # no closing tag of an open call is before this character
        self._space = ""  # white space that becomes text only if text follows
        self._in_thoughts = in_thoughts
        self.num_calls = 0

    def read(self, reply: str, closed: bool) -> list[str | ToolCall]:
        """Return the new texts and calls, in order. `reply` is the whole reply so far. `closed` means that the reply is
        complete."""
        found: list[str | ToolCall] = []
        if closed and not self._at:
            self._in_thoughts = self._in_thoughts or begins_in_thoughts(reply)
        while self._at < len(reply):
            tags = [CLOSE_THOUGHTS] if self._in_thoughts else [OPEN, OPEN_THOUGHTS]
            start, tag = min(
                ((place, tag) for tag in tags if (place := reply.find(tag, self._at)) >= 0), default=(-1, "")
            )
            if start < 0:
                # The last characters may start a tag: hold them back until more text decides.
                end = len(reply) if closed else len(reply) - partial_mark_length(reply[self._at :], tags)
                self._take_text(reply, end, found)
                break
            if tag != OPEN:
                self._take_text(reply, start + len(tag), found)
                self._in_thoughts = not self._in_thoughts
                continue
            self._take_text(reply, start, found)
            body = reply[start + len(tag) :].lstrip()
            if body and not body.startswith("{"):  # the tag is only mentioned
                self._take_text(reply, start + len(tag), found)
                continue
            # Only a new closing tag can end an open call. Without a new closing tag, do not parse the call again.
            ends = closed or reply.find(CLOSE, max(start, self._searched)) >= 0
            match = CALL.match(reply, start) if ends else None
            # Until the reply is complete, a call without a closing tag may still become well-formed.
            if match is None and not closed:
                self._searched = max(0, len(reply) - len(CLOSE) + 1)
                break
            self._take_call(reply, match, found)
        # A reply without calls keeps its final white space, so that the text is exactly as sampled.
        if closed and not self.num_calls and self._space:
            found.append(self._space)
            self._space = ""
        return found

    def _take_call(self, reply: str, match: re.Match[str] | None, found: list[str | ToolCall]) -> None:
        """Add the call at the current position to `found`. A malformed call (`match` may be None) becomes text, up to
        the next closing tag."""
        call = _parse(match["call"]) if match else None
        if match is None or call is None:
            _, tag, rest = reply[self._at :].partition(CLOSE)
            self._take_text(reply, len(reply) - len(rest) if tag else len(reply), found)
            return
        self.num_calls += 1
        self._space = ""
        found.append(call)
        self._at = match.end()

    def _take_text(self, reply: str, end: int, found: list[str | ToolCall]) -> None:
        text = reply[self._at : end]
        self._at = end
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


def read_calls(text: str) -> list[tuple[str, Any]]:
    """Return the name and the arguments of each call in a whole text."""
    parts = ToolReader().read(text, closed=True)
    return [(part.name, json.loads(part.arguments)) for part in parts if isinstance(part, ToolCall)]


def render_tools(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """Return the chat template's text for a conversation with a tool, a call and its result, with markers as names and
    values.

    Return None if the template raises an error or omits one of these markers.
    """
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
    """Return the reason why a policy with this chat template cannot call tools, as part of a sentence; empty if the
    policy can call tools."""
    text = render_tools(tokenizer)
    if text is None:
        return "does not write tools, calls of them and their results"
    if read_calls(text) != [(f"{MARKER}name", {f"{MARKER}key": "value"})]:
        return f'writes calls of tools in another form than {OPEN}{{"name": ..., "arguments": {{...}}}}{CLOSE}'
    return ""
