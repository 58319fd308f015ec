"""Finds tool calls in the text of a reply: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`.

Reads the text as it grows, so that a streamed reply shows neither tags nor half of one. What is no well-formed call
stays text. Knows nothing of which tools there are: a call of an unknown one is the client's to answer.
"""

import json
import uuid
from dataclasses import dataclass

from slimrl.inference.server.text import held_back, is_writable

OPEN, CLOSE = "<tool_call>", "</tool_call>"


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
                end = len(reply) if closed else len(reply) - held_back(reply[self._at :], [OPEN])
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
