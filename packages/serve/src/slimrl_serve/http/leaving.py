"""Cancels the work for a client that has left. It does not depend on the application."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

T = TypeVar("T")


class ClientGone(Exception):
    """The client closed the connection before its answer was ready."""


async def run_unless_gone(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """Return the result of `work`. If the client leaves first, cancel it, wait for it and raise ClientGone. `receive`
    is the request's ASGI function; the body must already be read."""
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
