"""Makes the events of a message from the pieces of a chat reply; a message in one piece is their sum.

With the pieces "It is" and " 42." the events are `message_start`, `content_block_start`, two `content_block_delta`,
`content_block_stop`, `message_delta` with the stop reason, and `message_stop`.
"""

import json
from collections.abc import Iterator, Sequence

from slimrl.io.text import is_too_deep, is_writable
from slimrl.models.chat.tags import CLOSE, OPEN
from slimrl_serve.chat import Chat
from slimrl_serve.dialects.translation import Plain
from slimrl_serve.errors import MESSAGES_PATH, ApiError, error_body


class MessageWriter:
    """Writes one message as events. `stops` are the stop sequences."""

    def __init__(self, head: Plain, stops: Sequence[str]) -> None:
        self.whole = head
        self._stops = stops
        self._in_text = False  # True if the last block is a text that may continue

    def begin(self) -> Iterator[Plain]:
        """Yield the events before any content."""
        yield {"type": "message_start", "message": {**self.whole, "content": [], "usage": {**self.whole["usage"]}}}

    def text(self, delta: str, logprobs: Sequence[Plain] = ()) -> Iterator[Plain]:
        """Yield the events of a piece of text."""
        if not self._in_text:
            yield self._start({"type": "text", "text": ""})
            self._in_text = True
        self.whole["content"][-1]["text"] += delta
        yield self._delta({"type": "text_delta", "text": delta})

    def call(self, call: Plain) -> Iterator[Plain]:
        """Yield the events of a tool call, given as in chat. The input of a `tool_use` is an object, so a call with
        other arguments stays text."""
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        given = _input(arguments)
        if given is None:
            spelt = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
            yield from self.text(f"{OPEN}\n{spelt}\n{CLOSE}")
            return
        yield from self._stop_text()
        yield self._start({"type": "tool_use", "id": call["id"], "name": name, "input": {}})
        self.whole["content"][-1]["input"] = given
        yield self._delta({"type": "input_json_delta", "partial_json": arguments})
        yield self._stop()

    def end(self, chat: Chat, finish_reason: str) -> Iterator[Plain]:
        """Yield the events after all content."""
        content, stop = self.whole["content"], self._stop_sequence(chat)
        if not content:  # clients look for a text
            yield from self.text("")
        yield from self._stop_text()
        if finish_reason == "length":
            reason = "max_tokens"
        elif any(block["type"] == "tool_use" for block in content):
            reason = "tool_use"
        else:
            reason = "end_turn" if stop is None else "stop_sequence"
        # Cached tokens are counted separately here, and in chat as a part of the prompt.
        usage = chat.generation.usage()
        counts = counts_of(usage["prompt_tokens"], usage["completion_tokens"], **usage["prompt_tokens_details"])
        ending = {"stop_reason": reason, "stop_sequence": stop if reason == "stop_sequence" else None}
        self.whole |= {**ending, "usage": counts}
        yield {"type": "message_delta", "delta": ending, "usage": counts}
        yield {"type": "message_stop"}

    def _stop_sequence(self, chat: Chat) -> str | None:
        """Return the stop sequence that stopped the text, or None."""
        text = chat.generation.choices[0].text
        if text.end < 0:
            return None
        return min((stop for stop in self._stops if text.settled.startswith(stop, text.end)), key=len)

    def failure(self, error: ApiError) -> Plain:
        """Return the last event of a stream whose sampling fails."""
        return error_body(MESSAGES_PATH, error)

    def _start(self, block: Plain) -> Plain:
        self.whole["content"].append(block)
        return {"type": "content_block_start", "index": len(self.whole["content"]) - 1, "content_block": {**block}}

    def _delta(self, delta: Plain) -> Plain:
        return {"type": "content_block_delta", "index": len(self.whole["content"]) - 1, "delta": delta}

    def _stop_text(self) -> Iterator[Plain]:
        if self._in_text:
            yield self._stop()
            self._in_text = False

    def _stop(self) -> Plain:
        return {"type": "content_block_stop", "index": len(self.whole["content"]) - 1}


def counts_of(num_prompt: int, num_sampled: int, cached_tokens: int = 0) -> Plain:
    """Return the token counts of a message."""
    return {
        "input_tokens": num_prompt - cached_tokens,
        "output_tokens": num_sampled,
        "cache_read_input_tokens": cached_tokens,
        "cache_creation_input_tokens": 0,
    }


def _input(arguments: str) -> Plain | None:
    """Return the arguments of a call as an object; None if they are not an object that a reply can quote."""
    try:
        read = json.loads(arguments) if arguments else {}
    except (ValueError, RecursionError):
        return None
    return read if isinstance(read, dict) and not is_too_deep(read) and is_writable(read) else None
