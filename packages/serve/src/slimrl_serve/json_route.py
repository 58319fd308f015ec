"""Checks the text of bodies before it is parsed, because parsing may take gigabytes and block the event loop."""

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from slimrl.io.text import MAX_DEPTH, is_too_deep, is_writable
from slimrl_serve.errors import bad_request

MAX_BODY_BYTES = 16 * 2**20
# Millions of values of two bytes each in a body would take gigabytes, and block the event loop for seconds.
MAX_VALUES, MAX_CONTAINERS = 2**21, 2**16


class JsonRoute(APIRoute):
    """A route that rejects JSON with too many objects, with too deep nesting, or with text that cannot be encoded.

    A text in JSON can contain half of a surrogate pair, which no tokenizer accepts and no reply can contain.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            return await handle(_JsonRequest(request.scope, request.receive))

        return handle_json


class _JsonRequest(Request):
    async def json(self) -> Any:
        try:
            text = (await self.body()).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise bad_request(f"The body is not UTF-8, as JSON must be: {error.reason}.") from None
        num_containers = text.count("{") + text.count("[")  # including braces in strings
        if num_containers > MAX_CONTAINERS or text.count(",") > MAX_VALUES:
            raise bad_request(
                f"The body has more than {MAX_CONTAINERS} opening braces and brackets, or more than {MAX_VALUES} "
                "commas. Send several requests."
            )
        try:
            content = json.loads(text)  # decoded above, because bytes would be accepted in UTF-16 and UTF-32 too
            too_deep = num_containers > MAX_DEPTH and is_too_deep(content)
        except RecursionError:
            too_deep = True
        if too_deep:
            raise bad_request(f"The body has objects or lists that are nested more than {MAX_DEPTH} deep.")
        if "\\u" in text and not is_writable(content):  # only an escape can spell a surrogate
            raise bad_request("The body has half of a surrogate pair, which is no text.")
        return content
