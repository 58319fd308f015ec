"""Checks every request before it reaches a route: its sender (`slimrl.io.http_access`) and its size. Cancels the work
for a client that has left.

Needs the extra `server`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from slimrl.io.http_access import Access, Refusal

MAX_HEAD_BYTES = 32 * 2**10
OPEN_TO_ALL = {"/health"}
HEADER_BYTES = 32  # the overhead of a header besides its text, as in HTTP/2
SMALL_BODY_BYTES = 64 * 2**10
MAX_BODIES_BYTES = 64 * 2**20  # bodies of all running requests; above this limit, only small bodies are accepted
MAX_DROPPED_BYTES = 64 * 2**20  # bytes to read of a body that is refused for its size
RETRY_AFTER_S = 1
CLOSE = {"Connection": "close"}

T = TypeVar("T")


class Guard:
    """ASGI middleware. It answers refused requests with `respond`, and passes other requests with their whole bodies to
    `app`."""

    def __init__(
        self, app: ASGIApp, access: Access, max_body_bytes: int, respond: Callable[[Refusal], Response]
    ) -> None:
        self._app, self._access, self._max_body_bytes, self._respond = app, access, max_body_bytes, respond
        self._num_held = 0  # bytes of the bodies of all running requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if refusal := self._refusal(scope, headers):
            if refusal.status == 413:
                await _drop_body(receive, MAX_DROPPED_BYTES)
            elif "Connection" in refusal.headers:
                await _drop_body(receive, SMALL_BODY_BYTES)
            await self._respond(refusal)(scope, receive, send)
        elif headers.get("content-length", "0") == "0":
            await self._app(scope, receive, send)
        else:
            await self._hand_on(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> Refusal | None:
        size = len(scope["raw_path"]) + len(scope["query_string"])
        size += sum(len(name) + len(value) + HEADER_BYTES for name, value in scope["headers"])
        if size > MAX_HEAD_BYTES:
            why = f"The head of the request is larger than {MAX_HEAD_BYTES // 2**10} KiB."
            return Refusal(431, why, "head_too_large", CLOSE)
        sender = scope["client"][0] if scope["client"] else ""
        if scope["path"] not in OPEN_TO_ALL and (refusal := self._access.refusal(sender, headers)):
            return refusal
        if "transfer-encoding" in headers:  # chunks of one byte each take seconds to parse
            why = "The request must say how long its body is, by the header `Content-Length`."
            return Refusal(411, why, "length_required", CLOSE)
        # The parser ensures that the value has only digits and that the body has this length.
        if int(headers.get("content-length", "0")) > self._max_body_bytes:
            why = f"The body is larger than the {self._max_body_bytes // 2**20} MiB that this server accepts."
            return Refusal(413, why, "body_too_large")
        return None

    async def _hand_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, held, more = bytearray(), 0, True
        try:
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return
                part = message.get("body", b"")
                body += part
                held += len(part)
                self._num_held += len(part)
                # Small bodies always pass. Otherwise a few large bodies could block all other requests.
                if self._num_held > MAX_BODIES_BYTES and held > SMALL_BODY_BYTES:
                    await self._respond(_FULL)(scope, receive, send)
                    return
                more = message.get("more_body", False)
            first: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]
            body.clear()

            async def receive_next() -> Message:
                return first.pop() if first else await receive()

            await self._app(scope, receive_next, send)
        finally:
            self._num_held -= held


async def _drop_body(receive: Receive, most: int) -> None:
    """Read a refused body and drop it, up to `most` bytes. Otherwise a client that is still sending when the server
    closes the connection would lose the answer."""
    num = 0
    while num < most:
        message = await receive()
        num += len(message.get("body", b""))
        if not message.get("more_body", False):  # the end of the body, or the client has left
            return


_FULL = Refusal(
    429,
    f"The requests under way have bodies of {MAX_BODIES_BYTES // 2**20} MiB already; until one has been answered, only "
    f"those of up to {SMALL_BODY_BYTES // 2**10} KiB are taken.",
    "bodies_too_large",
    {"Retry-After": str(RETRY_AFTER_S)},
)


class ClientGone(HTTPException):
    """The client closed the connection before its answer was ready."""

    def __init__(self) -> None:
        super().__init__(499, "The client closed the connection.")


async def run_unless_gone(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """Return the result of `work`. If the client leaves first, cancel `work`, wait until it has stopped, and raise
    ClientGone. `receive` is the request's ASGI function. The body must already be read."""
    task, gone = asyncio.create_task(work), asyncio.create_task(_wait_for_disconnect(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _wait_for_disconnect(receive: Receive) -> None:
    # The body has already been read, so only the disconnect can still arrive.
    while (await receive())["type"] != "http.disconnect":
        pass
