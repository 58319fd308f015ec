"""Sends replies as server-sent events, and cancels work when its client disconnects.

Both call `close` at the end, however it comes, and tell whether the client had disconnected before.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from slimrl.inference.server.errors import ApiError, error_body
from slimrl.io.http_leaving import ClientGone, run_unless_gone

LOG = logging.getLogger("slimrl.server")
T = TypeVar("T")
Close = Callable[[bool], None]


class EventStream(StreamingResponse):
    """A reply of objects as `data:` lines, then `[DONE]`. `close` is called even if nothing was sent."""

    def __init__(self, objects: AsyncIterator[dict[str, Any]], close: Close) -> None:
        super().__init__(self._lines(objects), media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
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
        try:
            async for item in objects:
                yield _line(item)
        except ApiError as error:
            yield _line(error_body(error.status_code, error.detail, error.param, error.code))
        except Exception:  # the status was sent long ago, so only an event can report the error
            LOG.exception("a stream failed")
            yield _line(error_body(500, "Internal error of the server; its log has the details."))
        self._ended = True
        yield b"data: [DONE]\n\n"


def _line(item: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


async def unless_gone(request: Request, work: Coroutine[Any, Any, T], close: Close) -> T:
    """The result of `work`. If the client disconnects, the work is cancelled, and `close` frees its slots."""
    client_left = False
    try:
        return await run_unless_gone(work, request.receive)
    except ClientGone as error:
        client_left = True
        raise ApiError(499, "The client closed the connection.") from error
    finally:
        close(client_left)
