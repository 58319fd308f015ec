"""Gives up the work for a client that has left. Knows nothing of the application."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

T = TypeVar("T")


class ClientGone(Exception):
    """The client has closed the connection before its answer was there."""


async def run_unless_gone(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """The result of `work`, which is cancelled, and has ended, if the client leaves before. `receive` is the request's
    ASGI function, when its body has been read. Raises ClientGone."""
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
    # The body has been read already, so all that can still arrive is the disconnect.
    while (await receive())["type"] != "http.disconnect":
        pass
