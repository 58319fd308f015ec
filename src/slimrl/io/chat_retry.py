"""Retries of requests to a chat server, until a reply can be used. Knows nothing of what makes a reply usable.

A temporary failure is tried again. A permanent one is a `RolloutError`, whose reason begins with the kind of server
(`judge_busy`). Many failures in a row, without a usable reply between them, stop the run.
"""

import asyncio
import math
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from slimrl.errors import RolloutError, UserError
from slimrl.io.chat_client import ChatConnection, ChatServer, Reply, RequestRefused, TryAgain
from slimrl.io.http import backoff_s

# A request that was cancelled counts as a failure of the server if it had waited for this share of `timeout_s`.
LONG_WAIT = 0.5
T = TypeVar("T")
Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time limit of one answer, and the failures of the tries so far."""

    limit: asyncio.Timeout
    troubles: list[RolloutError] = field(default_factory=list)


class RetryingChat:
    """A chat server that is asked again after temporary failures, with at most `num_concurrent` requests at once. All
    calls must come from one event loop."""

    def __init__(self, server: ChatServer) -> None:
        self._server = server
        self.connection = ChatConnection(server)
        self._places = asyncio.Semaphore(server.num_concurrent)
        self._failures: list[str] = []  # since the last usable reply
        self._replied_at = -math.inf  # by the clock of the event loop
        self._rng = random.Random(0)

    @asynccontextmanager
    async def deadline(self) -> AsyncIterator[Deadline]:
        """The time limit of one answer, as a context. A failure inside it counts as a failure of the server. Raises
        RolloutError when the time is over, UserError after too many failures in a row."""
        self._stop_after_many_failures()
        began = asyncio.get_running_loop().time()
        limit = asyncio.timeout(self._server.timeout_s)
        deadline = Deadline(limit)
        try:
            async with limit:
                yield deadline
        except TimeoutError as error:
            failure = self._timeout_error(deadline.troubles)
            self._record_failure(str(failure))
            raise failure from error
        except RolloutError as error:
            self._record_failure(str(error))
            raise
        except asyncio.CancelledError:
            # A framework that aborts many episodes at once, as SLIME does, says nothing about the server. But a server
            # that has answered no request for so long may be gone.
            waited_s = asyncio.get_running_loop().time() - max(began, self._replied_at)
            if waited_s > LONG_WAIT * self._server.timeout_s:
                self._failures.append("the episode ended first; `timeout_s` should be below `episode_timeout_s`")
            raise

    async def ask(
        self,
        body_of: Callable[[int], Body],
        read: Callable[[Reply], T],
        deadline: Deadline,
        instead_of: Callable[[Body], Body | None] = lambda body: None,
    ) -> T:
        """The result of `read` on the first reply that it accepts; it raises TryAgain to reject one. `body_of` returns
        the request for the number of tries that have counted so far, `instead_of` the one to send in the place of a
        request that the server does not accept. Raises RolloutError when no try is left."""
        num_counted, troubles = 0, deadline.troubles
        async with self._places:
            while True:
                try:
                    usable = read(await self._reply(body_of(num_counted), instead_of))
                    self._failures.clear()
                    self._replied_at = asyncio.get_running_loop().time()
                    return usable
                except TryAgain as again:
                    troubles.append(again.failure)
                    num_counted += again.counts
                    if num_counted >= self._server.max_tries:
                        raise _last_failure(troubles, f"{len(troubles)} tries") from again
                    wait_s = self._wait_s(again, len(troubles))
                    if asyncio.get_running_loop().time() + wait_s > (deadline.limit.when() or 0.0):
                        late = f"`timeout_s` = {self._server.timeout_s:g} leaves no other try"
                        raise _last_failure(troubles, late) from again
                await asyncio.sleep(wait_s)

    async def _reply(self, body: Body, instead_of: Callable[[Body], Body | None]) -> Reply:
        try:
            return await self.connection.reply(body)
        except RequestRefused:
            if (other := instead_of(body)) is None:
                raise
            return await self.connection.reply(other)

    async def check(self, body: Body) -> None:
        """Sends a request before the run starts. Raises UserError if no reply comes within `timeout_s`."""
        server = self._server
        why = f"no reply within `timeout_s` = {server.timeout_s:g} s"
        try:
            async with asyncio.timeout(server.timeout_s):
                while busy := await self._busy(body):  # a server that loads its model says that it is busy
                    why = f"{busy} (`timeout_s` = {server.timeout_s:g})"
                    await asyncio.sleep(self._wait_s(busy, 1))
        except (RolloutError, TimeoutError) as error:
            raise UserError(
                f"the {server.who} {server.model} at {server.base_url} cannot be asked: {str(error) or why}. "
                f"{server.advice}; a key goes into the variable {server.api_key_variable}."
            ) from error

    async def _busy(self, body: Body) -> TryAgain | None:
        """The server's report that it is busy, or None if it replies. Raises RolloutError for any other failure."""
        try:
            await self.connection.reply(body)
        except TryAgain as again:
            if again.failure.reason != f"{self._server.who}_busy":
                raise again.failure from again
            return again
        return None

    def _wait_s(self, again: TryAgain, tries: int) -> float:
        """How long to wait before the next try, in seconds: as long as the server asks for, else by backoff."""
        return again.wait_s if again.wait_s or again.at_once else backoff_s(tries, self._rng.random())

    def _timeout_error(self, troubles: list[RolloutError]) -> RolloutError:
        within = f"no {self._server.gives} within `timeout_s` = {self._server.timeout_s:g} s"
        if troubles:
            return _last_failure(troubles, within)
        waited = f"{within}, the wait for one of `num_concurrent` places included"
        return RolloutError(f"{self._server.who}_timeout", waited)

    def _record_failure(self, detail: str) -> None:
        self._failures.append(detail)
        self._stop_after_many_failures()

    def _stop_after_many_failures(self) -> None:
        if len(self._failures) >= self._server.max_failures:
            server = self._server
            raise UserError(
                f"the {server.who} {server.model} at {server.base_url} gave no {server.gives} {len(self._failures)} "
                f"times in a row, the last time: {self._failures[-1]}. {server.advice}, and continue with `--resume`."
            )


def _last_failure(troubles: list[RolloutError], when: str) -> RolloutError:
    return RolloutError(troubles[-1].reason, f"{troubles[-1].detail} ({when})")
