"""Sends requests to a sampling server, and waits for the answers.

If the server is unreachable or busy, requests are repeated. If the server gives no sign of life for `timeout_s`, an
error with the server's name ends the run. Only an answer of the server's engine is a sign of life, because a front end
may accept connections while its engine hangs.
"""

import asyncio
import os
import time
from collections.abc import Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from slimrl.errors import UserError
from slimrl.io.descriptors import allow_descriptors
from slimrl.io.http import PASSING, HttpClient, HttpError, Limits, Peer, ask_again
from slimrl.io.loop_thread import LoopTasks

WHO = "sampler"
NUM_CONCURRENT, LEAST_CONCURRENT = 4096, 8  # open requests; further requests wait in this process
RESERVED_DESCRIPTORS = 64  # for files and pipes that the run opens later
LOOKS, MOST_LOOK_S = 10, 10.0  # probes of a silent server within `timeout_s`, and the most seconds between two probes
ADVICE = "Start it again, or give it more time by --inference.timeout_s, and continue with --resume."

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SamplerAddress:
    """The address and access of a sampler. `base_url` has no path, `key` is the API key, and `timeout_s` is the longest
    allowed time in seconds without a sign of life."""

    base_url: str
    key: str = ""
    timeout_s: float = 120.0
    backend: Literal["slimrl", "vllm"] = "slimrl"


class Refused(UserError):
    """The server answered that it will not execute the request."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class Silent(UserError):
    """The server has given no sign of life for too long."""


class ServerLink:
    """The connections to one server. All async methods must run in the process's loop thread: pass their coroutines to
    `start` or `wait`."""

    def __init__(self, address: SamplerAddress) -> None:
        self._address = address
        self._url = address.base_url.rstrip("/")
        self._peer = Peer(WHO, self._url, address.key)
        self._http = HttpClient(self._peer, _most_requests())
        # Probes have their own connection, so that they never wait behind requests.
        self._looks = HttpClient(self._peer, 1)
        self._tasks = LoopTasks(self._http.aclose, self._looks.aclose)
        self._look_s = min(address.timeout_s / LOOKS, MOST_LOOK_S)
        self._looking: Future[str] | None = None

    @property
    def name(self) -> str:
        """The name of the server in messages."""
        return f"the {WHO} at {self._url}"

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start the coroutine `work` in the loop thread, and return a future of its result."""
        return self._tasks.start(work)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine `work` in the loop thread, block until it is done, and return its result."""
        return self._tasks.wait(work)

    def close(self) -> None:
        """Cancel open requests, and close the connections."""
        self._tasks.close()

    async def get(self, path: str) -> Any:
        """Return the JSON answer of a route. Raises UserError like `post`."""
        return await self._ask("GET", path, None, retries=True)

    async def post(self, path: str, body: Any, retries: bool = True) -> Any:
        """Return the JSON answer of a route. With `retries`, the request is repeated while the server fails.

        Raises:
                Refused: the server will not execute the request.
                Silent: the server gives no sign of life.
                UserError: another program answers at its address.
        """
        return await self._ask("POST", path, body, retries)

    async def _ask(self, method: str, path: str, body: Any, retries: bool) -> Any:
        """Repeat the request until there is an answer. Meanwhile, probe the server, and raise Silent without a sign of
        life."""
        url, patience_s = f"{self._url}{path}", self._address.timeout_s
        limits = Limits(patience_s=patience_s, passing=PASSING if retries else frozenset())
        asked = asyncio.create_task(ask_again(self._peer, lambda _: self._http.send(method, url, body), limits))
        seen_s = time.monotonic()
        try:
            while not (await asyncio.wait({asked}, timeout=self._look_s))[0]:
                trouble = await self._look()
                if not trouble:
                    seen_s = time.monotonic()
                elif time.monotonic() - seen_s > patience_s:
                    raise self._silence(trouble)
            return asked.result()
        except HttpError as error:
            if error.status and error.status not in limits.passing:
                raise Refused(str(error), error.status) from error
            raise self._silence(f"{path} {error.said}") from error
        finally:
            asked.cancel()

    async def _look(self) -> str:
        """Return the result of `_find_trouble`. Concurrent callers share one probe."""
        if self._looking is None or self._looking.done():
            self._looking = self.start(self._find_trouble())
        return await asyncio.shield(asyncio.wrap_future(self._looking))

    async def _find_trouble(self) -> str:
        """Probe the server, and return the reason why it does not answer; an empty text if its engine is alive."""
        try:
            async with asyncio.timeout(self._look_s):
                reply = await self._looks.send("GET", f"{self._url}/is_paused")
            is_paused = isinstance(reply, dict) and reply.get("is_paused")  # another program may answer here
            return "it is paused, and POST /resume lets it go on" if is_paused else ""
        except HttpError as error:
            return f"/is_paused {error.said}"
        except TimeoutError:
            return f"/is_paused has not answered within {self._look_s:g} s"

    def _silence(self, trouble: str) -> Silent:
        return Silent(f"{self.name} has given no sign of life for {self._address.timeout_s:g} s ({trouble}). {ADVICE}")


def _most_requests() -> int:
    """Return the maximum number of open requests, limited by the file descriptors that this process may still open."""
    num_taken = len(os.listdir("/dev/fd")) + RESERVED_DESCRIPTORS
    return max(LEAST_CONCURRENT, min(NUM_CONCURRENT, allow_descriptors(NUM_CONCURRENT + num_taken) - num_taken))
