"""Sends replies as server-sent events, and cancels work when its client disconnects.

Both finally call `close`, and report if the client had disconnected before.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from slimrl_serve.errors import BUG, ApiError
from slimrl_serve.http.leaving import ClientGone, run_unless_gone
from slimrl_serve.opened import Opened

LOG = logging.getLogger("slimrl.server")
T = TypeVar("T")
Close = Callable[[bool], None]


class EventStream(StreamingResponse):
    """A reply in events. Its generation is closed even if nothing was sent."""

    def __init__(self, opened: Opened) -> None:
        super().__init__(self._lines(opened), media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        self._close = opened.generation.close
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

    async def _lines(self, opened: Opened) -> AsyncIterator[bytes]:
        try:
            async for item in opened.chunks():
                yield _event(item)
        except ApiError as error:
            yield _event(opened.failure(error))
        except Exception:  # the status was sent before, so only an event can report the error
            LOG.exception("a stream failed")
            yield _event(opened.failure(ApiError(500, BUG)))
        self._ended = True
        yield opened.end


def _event(item: dict[str, Any]) -> bytes:
    """Return an object as an event; its name is the object's type, if any, as in the dialects."""
    name = f"event: {item['type']}\n" if "type" in item else ""
    return f"{name}data: {json.dumps(item, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


async def answer(request: Request, opened: Opened, stream: bool | None) -> Response:
    """Sample the reply of a request, and return it whole or as a stream."""
    opened.generation.start()
    if stream:
        # The status line is sent before the first token, so later errors are sent as events.
        return EventStream(opened)
    return JSONResponse(await unless_gone(request, opened.reply(), opened.generation.close))


async def unless_gone(request: Request, work: Coroutine[Any, Any, T], close: Close = lambda client_left: None) -> T:
    """Return the result of `work`, which is cancelled if the client disconnects. `close` is always called in the end,
    to free the slots."""
    client_left = False
    try:
        return await run_unless_gone(work, request.receive)
    except ClientGone as error:
        client_left = True
        raise ApiError(499, "The client closed the connection.") from error
    finally:
        close(client_left)
