"""The module bounds the requests on which a server works, and gives up the work for clients that have left."""

from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from slimrl_sandbox.base import check_limits
from slimrl_serve.http.leaving import ClientGone, run_unless_gone

T = TypeVar("T")


class Refused(Exception):
    """A request is not worked on; the text says why, with the HTTP status `status`."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Admission:
    """An admission of at most `max_queue` requests at a time, running and waiting ones together."""

    def __init__(self, max_queue: int) -> None:
        check_limits(max_queue=max_queue)
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
        try:
            return await run_unless_gone(work, receive)
        except ClientGone as error:
            raise Refused(499, "The client closed the connection.") from error
        finally:
            self._num_open -= 1
