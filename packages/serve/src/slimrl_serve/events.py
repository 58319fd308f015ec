"""Sends replies as server-sent events, and cancels work when its client disconnects.

Both call `close` at the end, however it comes, and tell whether the client had disconnected before.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from slimrl_serve.errors import BUG, ApiError, error_body
from slimrl_serve.http.leaving import ClientGone, run_unless_gone

LOG = logging.getLogger("slimrl.server")
T = TypeVar("T")
Close = Callable[[bool], None]


def data_line(item: dict[str, Any]) -> bytes:
    """An object as an event without a name, as OpenAI's chat has them."""
    return b"data: " + json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def event_line(item: dict[str, Any]) -> bytes:
    """An object as an event that has the name of the object's type."""
    return f"event: {item['type']}\n".encode() + data_line(item)


@dataclass(frozen=True, slots=True)
class EventForm:
    """How objects and an error become events, and what is sent last."""

    write: Callable[[dict[str, Any]], bytes]
    failure: Callable[[ApiError], dict[str, Any]]
    end: bytes


CHAT_EVENTS = EventForm(
    data_line, lambda error: error_body(error.status_code, error.detail, error.param, error.code), b"data: [DONE]\n\n"
)


class EventStream(StreamingResponse):
    """A reply of objects as events. `close` is called even if nothing was sent."""

    def __init__(self, objects: AsyncIterator[dict[str, Any]], close: Close, form: EventForm = CHAT_EVENTS) -> None:
        super().__init__(self._lines(objects), media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        self._form = form
        self._close = close
        self._ended = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        cancelled = False
        try:
            await super().__call__(scope, receive, send)
        except asyncio.CancelledError:  # by the server, which is shutting down
            cancelled = True
            raise
        finally:
            self._close(not self._ended and not cancelled)

    async def _lines(self, objects: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
        form = self._form
        try:
            async for item in objects:
                yield form.write(item)
        except ApiError as error:
            yield form.write(form.failure(error))
        except Exception:  # the status was sent long ago, so only an event can report the error
            LOG.exception("a stream failed")
            yield form.write(form.failure(ApiError(500, BUG)))
        self._ended = True
        yield form.end


async def unless_gone(request: Request, work: Coroutine[Any, Any, T], close: Close = lambda client_left: None) -> T:
    """The result of `work`, which is cancelled if the client disconnects. `close` is called at the end, to free its
    slots."""
    client_left = False
    try:
        return await run_unless_gone(work, request.receive)
    except ClientGone as error:
        client_left = True
        raise ApiError(499, "The client closed the connection.") from error
    finally:
        close(client_left)
