"""Asks a chat server until its reply can be used, or there is no hope. Knows nothing of what makes a reply usable.

What may pass is tried again; what does not is a `RolloutError`, whose reason begins with who was asked (`judge_busy`);
nothing but failures, many in a row, stop the run.
"""

import asyncio
import math
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from slimrl.errors import RolloutError, UserError
from slimrl.io.chat_client import ChatConnection, ChatServer, Reply, TryAgain
from slimrl.io.http import backoff_s

LONG_WAIT = 0.5  # of `timeout_s`: a request that is given up after less is no failure of the server
T = TypeVar("T")
Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time left for one answer, and what has gone wrong so far."""

    limit: asyncio.Timeout
    troubles: list[RolloutError] = field(default_factory=list)


class RetryingChat:
    """Everything that is asked of one server, at most `num_concurrent` at once. All of it in one event loop."""

    def __init__(self, server: ChatServer) -> None:
        self._server = server
        self.connection = ChatConnection(server)
        self._places = asyncio.Semaphore(server.num_concurrent)
        self._failures: list[str] = []  # since the last usable reply
        self._replied_at = -math.inf  # by the clock of the event loop
        self._rng = random.Random(0)

    @asynccontextmanager
    async def deadline(self) -> AsyncIterator[Deadline]:
        """The time for one answer. What fails inside counts as a failure of the server. Raises RolloutError when the
        time is over, UserError after too many failures."""
        self._give_up_if_hopeless()
        began = asyncio.get_running_loop().time()
        limit = asyncio.timeout(self._server.timeout_s)
        deadline = Deadline(limit)
        try:
            async with limit:
                yield deadline
        except TimeoutError as error:
            failure = self._too_late(deadline.troubles)
            self._failed(str(failure))
            raise failure from error
        except RolloutError as error:
            self._failed(str(error))
            raise
        except asyncio.CancelledError:
            # Whoever gives up many episodes at once, as SLIME does, says nothing about the server; but one that has
            # told nobody anything in the meantime may be gone.
            waited_s = asyncio.get_running_loop().time() - max(began, self._replied_at)
            if waited_s > LONG_WAIT * self._server.timeout_s:
                self._failures.append("the episode ended first; `timeout_s` should be below `episode_timeout_s`")
            raise

    async def ask(self, body_of: Callable[[int], Body], read: Callable[[Reply], T], deadline: Deadline) -> T:
        """Tries until `read`, which may raise TryAgain, makes something of the reply. `body_of` is the request by the
        number of tries so far that count."""
        num_counted, troubles = 0, deadline.troubles
        async with self._places:
            while True:
                try:
                    usable = read(await self.connection.reply(body_of(num_counted)))
                    self._failures.clear()
                    self._replied_at = asyncio.get_running_loop().time()
                    return usable
                except TryAgain as again:
                    troubles.append(again.failure)
                    num_counted += again.counts
                    if num_counted >= self._server.max_tries:
                        raise _after(troubles, f"{len(troubles)} tries") from again
                    wait_s = self._wait_s(again, len(troubles))
                    if asyncio.get_running_loop().time() + wait_s > (deadline.limit.when() or 0.0):
                        late = f"`timeout_s` = {self._server.timeout_s:g} leaves no other try"
                        raise _after(troubles, late) from again
                await asyncio.sleep(wait_s)

    async def check(self, body: Body) -> None:
        """A rehearsal: whoever cannot say anything within the time for an answer is of no use. Raises UserError."""
        server = self._server
        why = f"no reply within `timeout_s` = {server.timeout_s:g} s"
        try:
            async with asyncio.timeout(server.timeout_s):
                while busy := await self._busy(body):  # as it is while it loads
                    why = f"{busy} (`timeout_s` = {server.timeout_s:g})"
                    await asyncio.sleep(self._wait_s(busy, 1))
        except (RolloutError, TimeoutError) as error:
            raise UserError(
                f"the {server.who} {server.model} at {server.base_url} cannot be asked: {str(error) or why}. "
                f"{server.advice}; a key goes into the variable {server.api_key_variable}."
            ) from error

    async def _busy(self, body: Body) -> TryAgain | None:
        """None if it replies. Raises RolloutError if it can neither do so nor promise to."""
        try:
            await self.connection.reply(body)
        except TryAgain as again:
            if again.failure.reason != f"{self._server.who}_busy":
                raise again.failure from again
            return again
        return None

    def _wait_s(self, again: TryAgain, tries: int) -> float:
        return again.wait_s if again.wait_s or again.at_once else backoff_s(tries, self._rng.random())

    def _too_late(self, troubles: list[RolloutError]) -> RolloutError:
        within = f"no {self._server.gives} within `timeout_s` = {self._server.timeout_s:g} s"
        if troubles:
            return _after(troubles, within)
        waited = f"{within}, the wait for one of `num_concurrent` places included"
        return RolloutError(f"{self._server.who}_timeout", waited)

    def _failed(self, detail: str) -> None:
        self._failures.append(detail)
        self._give_up_if_hopeless()

    def _give_up_if_hopeless(self) -> None:
        if len(self._failures) >= self._server.max_failures:
            server = self._server
            raise UserError(
                f"the {server.who} {server.model} at {server.base_url} gave no {server.gives} {len(self._failures)} "
                f"times in a row, the last time: {self._failures[-1]}. {server.advice}, and continue with `--resume`."
            )


def _after(troubles: list[RolloutError], when: str) -> RolloutError:
    return RolloutError(troubles[-1].reason, f"{troubles[-1].detail} ({when})")
