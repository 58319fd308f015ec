"""Checks requests before any route sees them: the API key, the size of the body, and valid text in its JSON.

Without an API key, requests that change the server must also come from a program and not from a web page.
"""

import hmac
import json
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import urlsplit

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from slimrl.inference.server.errors import ApiError, bad_request, error_body
from slimrl.io.text import is_writable
from slimrl.io.urls import is_loopback

MAX_BODY_BYTES = 16 * 2**20
OPEN_TO_ALL = {"/health"}


class Guard:
    """ASGI middleware that checks the API key and the body's size. An empty `api_key` lets every request pass."""

    def __init__(self, app: ASGIApp, api_key: str) -> None:
        self._app = app
        self._expected = f"Bearer {api_key}".encode() if api_key else b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if self._expected and scope["path"] not in OPEN_TO_ALL:
            given = headers.get(b"authorization", b"")
            # In constant time, so that the time of an answer tells nothing of the key.
            if not hmac.compare_digest(given, self._expected):
                await _refuse(
                    401,
                    "An API key is needed, as in `Authorization: Bearer KEY`; there is none, or a wrong one.",
                    "invalid_api_key",
                )(scope, receive, send)
                return
        # The declared length rejects at once; `_limit_body` counts what arrives without or despite one.
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > MAX_BODY_BYTES:
            await _refuse(413, _too_large(), "body_too_large")(scope, receive, send)
            return
        await self._app(scope, _limit_body(receive), send)


def _limit_body(receive: Receive) -> Receive:
    """The same `receive`, which raises ApiError 413 once the body is too large."""
    num_bytes = 0

    async def receive_limited() -> Message:
        nonlocal num_bytes
        message = await receive()
        num_bytes += len(message.get("body", b""))
        if num_bytes > MAX_BODY_BYTES:
            raise ApiError(413, _too_large(), code="body_too_large")
        return message

    return receive_limited


def _too_large() -> str:
    return f"The body is larger than the {MAX_BODY_BYTES // 2**20} MiB that this server accepts."


def _refuse(status: int, message: str, code: str) -> JSONResponse:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {"Connection": "close"}
    return JSONResponse(error_body(status, message, code=code), status, headers)


class OwnRequests:
    """A dependency of routes that change the server: without an API key, web pages may not call them.

    A browser on this machine reaches the loopback address on behalf of any page. Such a request has the page's address
    in `Origin`, or, if the page's own name resolves to this machine (DNS rebinding), that name in `Host`.
    """

    def __init__(self, api_key: str, bound_host: str) -> None:
        self._has_key = bool(api_key)
        self._bound_host = bound_host.lower()

    async def __call__(self, request: Request) -> None:
        if self._has_key:
            return  # no page knows the key, and `Guard` has checked it
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        # Only what a browser sends gives a page away: programs send no `Origin`, and the server's address as `Host`.
        if not self._is_ours(host):
            found = f"the header `Host: {host}`, which is not this server's address"
        elif origin not in (None, f"http://{host}"):
            found = f"the header `Origin: {origin}`, which a web page of others sends"
        else:
            return
        raise ApiError(
            403,
            f"The request has {found}. Without an api_key only programs on the server's machine may change it. Leave "
            "the header as it is by default, or start the server with the variable SLIMRL_API_KEY.",
            code="foreign_request",
        )

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return name == self._bound_host or is_loopback(name)


class TextRoute(APIRoute):
    """A route that rejects JSON with text that cannot be encoded.

    JSON can spell half of a surrogate pair, which no tokenizer accepts and no reply can quote.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_text(request: Request) -> Response:
            return await handle(_TextRequest(request.scope, request.receive))

        return handle_text


class _TextRequest(Request):
    async def json(self) -> Any:
        try:
            text = (await self.body()).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise bad_request(f"The body is not UTF-8, as JSON must be: {error.reason}.") from None
        content = json.loads(text)  # decoded above, because bytes would be accepted in UTF-16 and UTF-32 too
        if "\\u" in text and not is_writable(content):  # nothing else can spell a surrogate
            raise bad_request("The body has half of a surrogate pair, which is no text.")
        return content
