"""The module bounds the requests on which a server works, and gives up the work for clients that have left."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
Receive = Callable[[], Awaitable[Any]]


class Refused(Exception):
    """A request is not worked on; the text says why, with the HTTP status `status`."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Admission:
    """An admission of at most `max_queue` requests at a time, running and waiting ones together."""

    def __init__(self, max_queue: int) -> None:
        self._max_queue = max_queue
        self._num_open = 0

    async def run(self, work: Coroutine[Any, Any, T], receive: Receive) -> T:
        """The result of `work`, which is cancelled if the client leaves; `receive` is the request's ASGI function, when
        its body has been read. Raises Refused."""
        if self._num_open >= self._max_queue:
            work.close()
            raise Refused(
                503, f"The queue is full: {self._num_open} requests run or wait, of at most max_queue. Come back later."
            )
        self._num_open += 1
        task, gone = asyncio.create_task(work), asyncio.create_task(_wait_for_disconnect(receive))
        try:
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise Refused(499, "The client closed the connection.")
            return task.result()
        finally:
            task.cancel()
            gone.cancel()
            await asyncio.gather(task, gone, return_exceptions=True)
            self._num_open -= 1


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
