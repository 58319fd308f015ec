"""Sends the reply to a sampling request, whole or as server-sent events, and cancels the sampling if the client leaves.

In both cases the request's generation is closed at the end, and is notified if the client has left.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from fastapi import Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from slimrl_serve import bodies
from slimrl_serve.errors import BUG, ApiError, error_body
from slimrl_serve.generation import Choice, Generation
from slimrl_serve.http.guard import ClientGone, run_unless_gone
from slimrl_serve.logprobs import TokenNames
from slimrl_serve.service import Service

LOG = logging.getLogger(__name__)
Plain = dict[str, Any]
Chunks = AsyncIterator[Plain]
T = TypeVar("T")
B = TypeVar("B", bound=bodies.Generation)


@dataclass(slots=True, eq=False)
class Reply(Generic[B]):
    """The reply of Chat Completions or Completions. `name` is the name of the served model."""

    generation: Generation
    service: Service
    body: B
    name: str
    created: int = field(default_factory=lambda: int(time.time()), kw_only=True)

    @property
    def names(self) -> TokenNames:
        """The writer of tokens as text."""
        return TokenNames(self.service.model.vocabulary, bool(self.body.return_tokens_as_token_ids))

    def head(self, kind: str) -> Plain:
        """Return the fields that every reply and every piece of a reply has."""
        return {"id": self.generation.request_id, "object": kind, "created": self.created, "model": self.name}

    def last_chunks(self, kind: str) -> list[Plain]:
        """Return the piece with the token counts, if requested."""
        if not (self.body.stream_options and self.body.stream_options.include_usage):
            return []
        return [self.head(kind) | {"choices": [], "usage": self.generation.usage()}]

    def token_ids(self, choice: Choice, start: int, end: int) -> Plain:
        """Return the sampled tokens `start..end` and their weight versions, if requested."""
        if not self.body.return_token_ids:
            return {}
        versions = choice.request.versions[start:end]
        return {"token_ids": choice.token_ids[start:end], "token_versions": versions}


class EventStream(StreamingResponse):
    """A reply as server-sent events. Its generation is closed even if nothing was sent."""

    def __init__(self, generation: Generation, chunks: Chunks) -> None:
        super().__init__(self._lines(chunks), media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        self._close = generation.close
        self._ended = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        cancelled = False
        try:
            await super().__call__(scope, receive, send)
        except asyncio.CancelledError:  # raised when the server shuts down
            cancelled = True
            raise
        finally:
            self._close(not self._ended and not cancelled)

    async def _lines(self, chunks: Chunks) -> AsyncIterator[bytes]:
        try:
            async for chunk in chunks:
                yield _event(chunk)
        except ApiError as error:
            yield _event(error_body(error))
        except Exception:  # the status was sent before, so only an event can report the error
            LOG.exception("a stream failed")
            yield _event(error_body(ApiError(500, BUG)))
        self._ended = True
        yield b"data: [DONE]\n\n"


def _event(chunk: Plain) -> bytes:
    return f"data: {json.dumps(chunk, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


async def answer(request: Request, generation: Generation, reply: Coroutine[Any, Any, Plain] | Chunks) -> Response:
    """Return the reply of a started generation: a coroutine is awaited, and an iterator becomes a stream."""
    if isinstance(reply, AsyncIterator):
        # The status line is sent before the first token, so later errors are sent as events.
        return EventStream(generation, reply)
    return JSONResponse(await unless_gone(request, reply, generation.close))


async def unless_gone(
    request: Request, work: Coroutine[Any, Any, T], close: Callable[[bool], None] = lambda client_left: None
) -> T:
    """Return the result of `work`. If the client disconnects, cancel `work` and raise ClientGone. `close` is called in
    every case, to free the slots."""
    client_left = False
    try:
        return await run_unless_gone(work, request.receive)
    except ClientGone:
        client_left = True
        raise
    finally:
        close(client_left)
