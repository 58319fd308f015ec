"""Makes the events of a message of the pieces of a chat reply; a message in one piece is what they add up to.

With the pieces "It is" and " 42." the events are `message_start`, `content_block_start`, two `content_block_delta`,
`content_block_stop`, `message_delta` with the reason of the end, and `message_stop`.
"""

import json
from collections.abc import Iterator
from typing import Any

from slimrl.io.text import is_too_deep, is_writable
from slimrl.models.chat.tags import CLOSE, OPEN
from slimrl_serve.errors import ApiError, messages_error

Plain = dict[str, Any]


class MessageWriter:
    """Writes one message. `message` is what is known of it so far."""

    def __init__(self, head: Plain) -> None:
        self.message = head
        self._in_text = False  # whether the last block is a text that may go on

    def begin(self) -> Iterator[Plain]:
        """Yield the events before any content."""
        yield {"type": "message_start", "message": {**self.message, "content": [], "usage": {**self.message["usage"]}}}

    def text(self, delta: str) -> Iterator[Plain]:
        """Yield the events of a piece of text."""
        if not self._in_text:
            yield self._start({"type": "text", "text": ""})
            self._in_text = True
        self.message["content"][-1]["text"] += delta
        yield self._delta({"type": "text_delta", "text": delta})

    def call(self, call: Plain) -> Iterator[Plain]:
        """Yield the events of a tool call, given as chat tells it. One whose arguments are no object, which the form
        of a `tool_use` demands, stays the text that it was."""
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        given = _input(arguments)
        if given is None:
            spelt = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
            yield from self.text(f"{OPEN}\n{spelt}\n{CLOSE}")
            return
        yield from self._stop_text()
        yield self._start({"type": "tool_use", "id": call["id"], "name": name, "input": {}})
        self.message["content"][-1]["input"] = given
        yield self._delta({"type": "input_json_delta", "partial_json": arguments})
        yield self._stop()

    def end(self, finish_reason: str, stop: str | None, usage: Plain) -> Iterator[Plain]:
        """Yield the events after all content. `stop` is the stop sequence that ended the text."""
        content = self.message["content"]
        if not content:  # clients look for a text
            yield from self.text("")
        yield from self._stop_text()
        if finish_reason == "length":
            reason = "max_tokens"
        elif any(block["type"] == "tool_use" for block in content):
            reason = "tool_use"
        else:
            reason = "end_turn" if stop is None else "stop_sequence"
        # What was found in the cache is counted apart here, and in chat as a part of the prompt.
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        counts = {"input_tokens": usage["prompt_tokens"] - cached, "output_tokens": usage["completion_tokens"]}
        counts |= {"cache_read_input_tokens": cached, "cache_creation_input_tokens": 0}
        ending = {"stop_reason": reason, "stop_sequence": stop if reason == "stop_sequence" else None}
        self.message |= {**ending, "usage": counts}
        yield {"type": "message_delta", "delta": ending, "usage": counts}
        yield {"type": "message_stop"}

    def failure(self, error: ApiError) -> Plain:
        """The event that ends the stream if sampling fails."""
        return messages_error(error.status_code, error.detail)

    def _start(self, block: Plain) -> Plain:
        self.message["content"].append(block)
        return {"type": "content_block_start", "index": len(self.message["content"]) - 1, "content_block": {**block}}

    def _delta(self, delta: Plain) -> Plain:
        return {"type": "content_block_delta", "index": len(self.message["content"]) - 1, "delta": delta}

    def _stop_text(self) -> Iterator[Plain]:
        if self._in_text:
            yield self._stop()
            self._in_text = False

    def _stop(self) -> Plain:
        return {"type": "content_block_stop", "index": len(self.message["content"]) - 1}


def _input(arguments: str) -> Plain | None:
    """The arguments of a call as an object; None if they are none that a reply can quote."""
    try:
        read = json.loads(arguments) if arguments else {}
    except (ValueError, RecursionError):
        return None
    return read if isinstance(read, dict) and not is_too_deep(read) and is_writable(read) else None
