"""Makes the events of a response from the pieces of a chat reply; a response in one piece is their sum.

With the pieces "It is" and " 42." the events are, after `response.created` and `response.in_progress`: an output item
(a message) and its content part are added, two deltas of text, both are done, and `response.completed` has the whole.
"""

from collections.abc import Callable, Iterator
from typing import Any

from slimrl_serve.chat import Chat
from slimrl_serve.dialects.translation import Plain
from slimrl_serve.errors import ApiError
from slimrl_serve.opened import new_id

STATUSES = {"length": "incomplete", "abort": "cancelled"}  # of finish reasons; all others are "completed"


class ResponseWriter:
    """Writes one response as events, and finally passes it to `store`."""

    def __init__(self, head: Plain, store: Callable[[Plain], None]) -> None:
        self.whole = head
        self._store = store
        self._num_events = 0
        self._item: Plain | None = None  # the unfinished message, the last item of the output

    def begin(self) -> Iterator[Plain]:
        """Yield the events before any output."""
        yield self._event("response.created", response=dict(self.whole))
        yield self._event("response.in_progress", response=dict(self.whole))

    def text(self, delta: str, logprobs: list[Plain]) -> Iterator[Plain]:
        """Yield the events of a piece of text."""
        if self._item is None:
            self._item = {"id": new_id("msg"), "type": "message", "role": "assistant", "status": "in_progress"}
            self._item["content"] = []
            yield from self._add(self._item)
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            self._item["content"].append(part)
            yield self._part_event("response.content_part.added", part=dict(part))
        part = self._item["content"][0]
        part["text"] += delta
        part["logprobs"] += logprobs
        yield self._part_event("response.output_text.delta", delta=delta, logprobs=logprobs)

    def call(self, call: Plain) -> Iterator[Plain]:
        """Yield the events of a tool call, given as in chat."""
        yield from self._close("completed")  # a call is a separate item after the message
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        item = {
            "id": new_id("fc"),
            "type": "function_call",
            "call_id": call["id"],
            "name": name,
            "arguments": arguments,
        }
        item["status"] = "completed"
        # A call arrives whole: it is announced without its arguments, which follow as a single delta.
        yield from self._add({**item, "arguments": "", "status": "in_progress"})
        self.whole["output"][-1] = item
        where = {"item_id": item["id"], "output_index": len(self.whole["output"]) - 1}
        yield self._event("response.function_call_arguments.delta", **where, delta=arguments)
        yield self._event("response.function_call_arguments.done", **where, name=name, arguments=arguments)
        yield self._event("response.output_item.done", output_index=where["output_index"], item=item)

    def end(self, chat: Chat, finish_reason: str) -> Iterator[Plain]:
        """Yield the events after all output."""
        if not self.whole["output"]:  # clients look for a message
            yield from self.text("", [])
        status = STATUSES.get(finish_reason, "completed")
        yield from self._close("completed" if status == "completed" else "incomplete")
        self.whole |= {"status": status, "usage": _usage(chat.generation.usage())}
        if finish_reason == "length":
            self.whole["incomplete_details"] = {"reason": "max_output_tokens"}
        self._store(self.whole)
        yield self._event(f"response.{'completed' if status == 'completed' else 'incomplete'}", response=self.whole)

    def failure(self, error: ApiError) -> Plain:
        """Return the last event of a stream whose sampling fails."""
        self.whole |= {"status": "failed", "error": {"code": "server_error", "message": error.detail}}
        return self._event("response.failed", response=self.whole)

    def _add(self, item: Plain) -> Iterator[Plain]:
        self.whole["output"].append(item)
        index = len(self.whole["output"]) - 1
        yield self._event("response.output_item.added", output_index=index, item={**item})

    def _close(self, status: str) -> Iterator[Plain]:
        """Yield the events that close the unfinished message, if any."""
        if self._item is None:
            return
        part = self._item["content"][0]
        self._item["status"] = status
        yield self._part_event("response.output_text.done", text=part["text"], logprobs=part["logprobs"])
        yield self._part_event("response.content_part.done", part=part)
        index = len(self.whole["output"]) - 1
        yield self._event("response.output_item.done", output_index=index, item=self._item)
        self._item = None

    def _part_event(self, kind: str, **fields: Any) -> Plain:
        assert self._item is not None
        where = {"item_id": self._item["id"], "output_index": len(self.whole["output"]) - 1, "content_index": 0}
        return self._event(kind, **where, **fields)

    def _event(self, kind: str, **fields: Any) -> Plain:
        event = {"type": kind, "sequence_number": self._num_events, **fields}
        self._num_events += 1
        return event


def _usage(usage: Plain) -> Plain:
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage["total_tokens"],
    }
