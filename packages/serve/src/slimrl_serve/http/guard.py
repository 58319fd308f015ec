"""Checks every request before it reaches a route: its sender (`slimrl.io.http_access`) and its size.

Needs the extra `server`.
"""

from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from slimrl.io.http_access import Access, Refusal
from slimrl_serve.http.connection import MAX_HEAD_BYTES, TEXTS

OPEN_TO_ALL = {"/health"}
HEADER_BYTES = 32  # the overhead of a header besides its text, as in HTTP/2
SMALL_BODY_BYTES = 64 * 2**10
MAX_BODIES_BYTES = 64 * 2**20  # of all running requests; beyond it only small bodies are accepted
RETRY_AFTER_S = 1
CLOSE = {"Connection": "close"}


class Guard:
    """ASGI middleware. It answers refused requests by `respond`, called with their path, and passes on the others with
    their whole bodies."""

    def __init__(
        self, app: ASGIApp, access: Access, max_body_bytes: int, respond: Callable[[Refusal, str], Response]
    ) -> None:
        self._app = app
        self._access = access
        self._max_body_bytes = max_body_bytes
        self._respond = respond
        self._num_held = 0  # bytes of the bodies of all running requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if refusal := self._refusal(scope, headers):
            await self._respond(refusal, scope["path"])(scope, receive, send)
        elif headers.get("content-length", "0") == "0":
            await self._app(scope, receive, send)
        else:
            await self._hand_on(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> Refusal | None:
        """Return the reason to refuse a request by its head; None if it is accepted."""
        size = len(scope["raw_path"]) + len(scope["query_string"])
        size += sum(len(name) + len(value) + HEADER_BYTES for name, value in scope["headers"])
        if size > MAX_HEAD_BYTES:
            return Refusal(431, TEXTS[431], "head_too_large", CLOSE)
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
        """Read the whole body, and then let the application answer."""
        parts, num_bytes, more = list[bytes](), 0, True
        try:
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return
                parts.append(message.get("body", b""))
                num_bytes += len(parts[-1])
                self._num_held += len(parts[-1])
                # Small bodies always pass, because others could fill the room for large ones.
                if self._num_held > MAX_BODIES_BYTES and num_bytes > SMALL_BODY_BYTES:
                    await self._respond(_FULL, scope["path"])(scope, receive, send)
                    return
                more = message.get("more_body", False)
            body = b"".join(parts)
            parts.clear()
            await self._app(scope, _receive_after(body, receive), send)
        finally:
            self._num_held -= num_bytes


_FULL = Refusal(
    429,
    f"The requests under way have bodies of {MAX_BODIES_BYTES // 2**20} MiB already; until one has been answered, only "
    f"those of up to {SMALL_BODY_BYTES // 2**10} KiB are taken.",
    "bodies_too_large",
    {"Retry-After": str(RETRY_AFTER_S)},
)


def _receive_after(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that starts with the whole body."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_next() -> Message:
        return first.pop() if first else await receive()

    return receive_next
