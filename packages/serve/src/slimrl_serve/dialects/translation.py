"""Translates bodies in other forms to chat requests, and the pieces of a chat reply to replies in those forms."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BeforeValidator, ValidationError

from slimrl_serve.bodies import ChatBody
from slimrl_serve.chat import Chat
from slimrl_serve.errors import ApiError, bad_request, explain
from slimrl_serve.opened import Opened

Plain = dict[str, Any]


class Writer(Protocol):
    """Writes one reply as events. `whole` is the part of the reply so far, in one piece."""

    whole: Plain

    def begin(self) -> Iterator[Plain]:
        """Yield the events before any content."""

    def text(self, delta: str, logprobs: list[Plain]) -> Iterator[Plain]:
        """Yield the events of a piece of text."""

    def call(self, call: Plain) -> Iterator[Plain]:
        """Yield the events of a tool call. It is complete, as in chat."""

    def end(self, chat: Chat, finish_reason: str) -> Iterator[Plain]:
        """Yield the events after all content."""

    def failure(self, error: ApiError) -> Plain:
        """Return the last event of a stream whose sampling fails."""


@dataclass(slots=True, eq=False)
class Translated(Opened):
    """A chat request whose reply is written in another form."""

    chat: Chat
    writer: Writer

    end = b""

    async def reply(self) -> Plain:
        """Return the whole reply."""
        async for _ in self.chunks():
            pass
        return self.writer.whole

    async def chunks(self) -> AsyncIterator[Plain]:
        """Yield the reply in events."""
        for event in self.writer.begin():
            yield event
        finish_reason = ""
        async for chunk in self.chat.chunks():
            (choice,) = chunk["choices"]
            for event in self._events(choice["delta"], (choice["logprobs"] or {}).get("content") or []):
                yield event
            finish_reason = choice["finish_reason"] or finish_reason
        for event in self.writer.end(self.chat, finish_reason):
            yield event

    def _events(self, delta: Plain, logprobs: list[Plain]) -> Iterator[Plain]:
        if delta.get("content") or logprobs:
            yield from self.writer.text(delta.get("content") or "", logprobs)
        for called in delta.get("tool_calls", []):
            yield from self.writer.call(called)

    def failure(self, error: ApiError) -> Plain:
        """Return the last event of a stream whose sampling fails."""
        return self.writer.failure(error)


def with_type(default: str) -> BeforeValidator:
    """Return a validator that adds a `type` to objects without one."""

    def add(item: Any) -> Any:
        return {"type": default, **item} if isinstance(item, Mapping) else item

    return BeforeValidator(add)


def chat_body(content: Plain, names: Mapping[str, str]) -> ChatBody:
    """Return the chat request with these fields. `names` maps their names to names in the original body, for errors."""
    try:
        return ChatBody.model_validate({name: value for name, value in content.items() if value is not None})
    except ValidationError as error:
        message, param = explain(error.errors())
        for ours, theirs in names.items():
            message = message.replace(ours, theirs)
        field, _, rest = param.partition(".")
        sent = names.get(field, field)
        raise bad_request(message, f"{sent}.{rest}" if rest and sent == field else sent) from None


def with_system(texts: Sequence[str], messages: Sequence[Plain]) -> list[Plain]:
    """Return the conversation with these texts and its first system messages joined; most templates want one, first."""
    start = 0
    while start < len(messages) and messages[start]["role"] in ("system", "developer"):
        start += 1
    joined = "\n\n".join(text for text in (*texts, *(message["content"] for message in messages[:start])) if text)
    return [*([{"role": "system", "content": joined}] if joined else []), *messages[start:]]


def call(id: str, name: str, arguments: str) -> Plain:
    """Return a tool call in the form of a chat message."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def function(
    name: str, description: str | None, parameters: Mapping[str, Any] | None, strict: bool | None = None
) -> Plain:
    """Return a tool in the form of a chat request."""
    described = {"name": name, "description": description, "parameters": parameters, "strict": strict}
    return {"type": "function", "function": {key: value for key, value in described.items() if value is not None}}
