"""Parses tool calls in the form `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` in replies.

`ToolReader` reads a reply while it grows, so that a streamed reply shows neither a tag nor part of a tag. A malformed
call stays text, and so does a call inside thoughts. The parser does not know which tools exist: the caller must answer
calls of unknown tools.
"""

import json
import re
import uuid
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from slimrl.io.rows import DECODER
from slimrl.io.text import is_too_deep, partial_mark_length
from slimrl.models.chat.tags import CALL, CLOSE, CLOSE_THOUGHTS, OPEN, OPEN_THOUGHTS
from slimrl.models.chat.thoughts import begins_in_thoughts

KEYS = ("arguments", "parameters")  # names for the arguments of a call


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call in OpenAI's form; `arguments` is JSON text."""

    id: str
    name: str
    arguments: str

    @property
    def pair(self) -> tuple[str, str]:
        """The name, and the arguments as JSON text in one spelling: the parts of two equal calls."""
        return self.name, json.dumps(self.values, ensure_ascii=False)

    @property
    def values(self) -> Any:
        """The arguments as an object; their text if they are not an object."""
        with suppress(ValueError, KeyError, RecursionError):
            value = DECODER.decode(self.arguments)
            return value if isinstance(value, dict) else self.arguments
        return self.arguments


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
        call = DECODER.decode(text)  # an object, by the pattern of calls
        if "name" not in call:
            return None
        return call_of(call if call.keys() & {*KEYS} else {**call, "arguments": {}}, ["arguments"])
    except (ValueError, KeyError, RecursionError):
        return None


def call_of(value: Any, keys: Collection[str] = KEYS) -> ToolCall:
    """Return the call that a value describes by its `name`, and by its arguments under one of `keys`. The call may be
    the `function` of the value. Raise ValueError for any other value, for arguments under two keys, and for arguments
    that JSON cannot hold."""
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    given = {key: value[key] for key in KEYS if key in value} if isinstance(value, dict) else {}
    if len(given) != 1 or not given.keys() <= {*keys} or not isinstance(value.get("name"), str):
        raise ValueError("no call")
    (arguments,) = given.values()
    if not isinstance(arguments, (dict, str)) or is_too_deep(arguments):
        raise ValueError("no arguments, or nested too deeply")
    try:  # a Python literal may be a set, and JSON as Python reads it may be nan or half a surrogate pair
        written = (
            arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        )
        f"{value['name']}{written}".encode()
    except TypeError as error:
        raise ValueError(str(error)) from error
    return ToolCall(f"call_{uuid.uuid4().hex}", value["name"], written)
