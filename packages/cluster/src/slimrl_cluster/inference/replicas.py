"""Defines the client for all samplers of a run. Any number of samplers may join and leave.

The client refreshes the list of samplers continuously, with `find`. A new or restarted sampler loads the newest weights
before it samples. If a sampler leaves, its open requests are repeated at other samplers, with the same seeds. Without
samplers, requests wait.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from slimrl.errors import UserError
from slimrl.inference.client import Completion
from slimrl.io.loop_thread import LoopTasks
from slimrl.types import SamplingParams
from slimrl_cluster.inference.remote_client import RemoteClient, Restarted
from slimrl_cluster.inference.routing import Router
from slimrl_cluster.inference.server_link import SamplerAddress, Silent

POLL_S = 0.25  # seconds between two checks for samplers
AGAIN_S = 60.0  # seconds after which a silent sampler is tried again
T = TypeVar("T")


class _Gone(Exception):
    """The sampler has left during a request."""


@dataclass(eq=False)
class _Member:
    """One sampler. `is_ready` is True once the sampler has the newest weights, and may sample."""

    address: SamplerAddress
    client: RemoteClient
    open: set[asyncio.Future[Any]] = field(default_factory=set)  # requests
    is_ready: bool = False
    is_gone: bool = False
    failure: UserError | None = None
    failed_s: float = 0.0  # time of the failure

    async def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work`, a request to this sampler, and return its result. Raises _Gone if the sampler leaves first."""
        asked = asyncio.ensure_future(work)
        self.open.add(asked)
        if self.is_gone:
            asked.cancel()
        try:
            await asyncio.wait({asked})
            if self.is_gone and (asked.cancelled() or asked.exception()):
                raise _Gone
            return asked.result()
        finally:
            self.open.discard(asked)
            asked.cancel()

    def leave(self) -> None:
        """Send this sampler no more requests, and cancel its open requests."""
        self.is_ready, self.is_gone = False, True
        for asked in self.open:
            asked.cancel()

    async def close(self) -> None:
        """Wait until no request is open, and close the connections."""
        while self.open:
            await asyncio.sleep(POLL_S)
        await asyncio.to_thread(self.client.close)


class Replicas:
    """An `inference.client.Client` of all samplers of a run.

    `find` returns the current addresses of the samplers, keyed by a name that is unique per process. `connect` creates
    a client for an address. `note` receives a line when a sampler joins late or leaves. If no sampler is ready for
    `timeout_s` seconds, requests raise UserError.
    """

    def __init__(
        self,
        find: Callable[[], Mapping[str, SamplerAddress]],
        connect: Callable[[SamplerAddress], RemoteClient],
        note: Callable[[str], None],
        timeout_s: float,
    ) -> None:
        self._find, self._connect, self._note, self._timeout_s = find, connect, note, timeout_s
        self._members: dict[str, _Member] = {}
        self._router = Router()
        self._directory: Path | None = None  # holds the newest weights of the run; None before the first ones
        self.version = 0
        self._giving, self._changed = asyncio.Lock(), asyncio.Event()
        self._work = LoopTasks()
        self._following = self._work.start(self._follow())

    async def sample(self, prompt: list[int], params: SamplingParams) -> Completion:
        """Sample at one of the samplers, like `RemoteClient.sample`. Raises UserError if no sampler can be used."""
        return await self._work.run(self._sample(prompt, params))

    def check(self) -> None:
        """Raise UserError if no sampler becomes ready, or if a ready sampler has the weights of another run."""
        self._work.wait(self._check())

    def update_weights(self, directory: Path, version: int) -> None:
        """Make all ready samplers load the weights in `directory`, and return when the weights are loaded. Raises
        UserError if a sampler refuses."""
        self._work.wait(self._update(directory.resolve(), version))

    def close(self) -> None:
        """Close the connections, which stops all sampling."""
        self._work.close()
        for member in self._members.values():
            member.client.close()

    async def _sample(self, prompt: list[int], params: SamplingParams) -> Completion:
        """Send the request to a sampler. If the sampler leaves before it answers, repeat the request at another
        sampler."""
        while True:
            member = await self._choose(prompt)
            try:
                return await member.ask(member.client.sample(prompt, params, self.version))
            except _Gone:
                continue
            except Restarted:
                self._admit_again(member)
            except Silent as error:
                if not self._give_up(member, error):
                    raise

    async def _choose(self, prompt: list[int]) -> _Member:
        """Wait for ready samplers, and return the router's choice for the prompt. Raises UserError if all samplers have
        failed, or if none is ready within the time limit."""
        began = time.monotonic()
        while True:
            if self._following.done():  # raise its error: without this task, nothing refreshes the list
                self._following.result()
            if ready := {name: len(one.open) for name, one in self._members.items() if one.is_ready}:
                return self._members[self._router.choose(prompt, ready)]
            members = [*self._members.values()]
            failures = [member.failure for member in members if member.failure]
            if failures and len(failures) == len(members):
                raise failures[0]
            if (waited_s := time.monotonic() - began) > self._timeout_s:
                there = ", ".join(member.address.base_url for member in members)
                what = f"none of the samplers is ready ({there})" if there else "there is no sampler"
                raise UserError(
                    f"{what}, for {waited_s:.0f} s now (deployment.timeout_s). Their logs say why; mend that, and "
                    "continue with --resume."
                )
            self._changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), POLL_S)

    def _give_up(self, member: _Member, error: Silent) -> bool:
        """Return True if other samplers can replace the silent `member`. In this case, `member` gets no requests until
        it joins again."""
        others = [one for one in self._members.values() if one is not member and not one.failure]
        if others and not member.failure:
            self._note(f"{error} Others go on with its work.")
            member.failure, member.failed_s = error, time.monotonic()
            member.leave()
        return bool(others)

    async def _follow(self) -> None:
        """Refresh the list of samplers, as long as the client is open."""
        while True:
            found = await asyncio.to_thread(self._find)  # in a thread, because it may wait for a file server
            for name, member in [*self._members.items()]:
                is_over = isinstance(member.failure, Silent) and time.monotonic() - member.failed_s > AGAIN_S
                if name not in found or is_over:  # the loop below adds a silent sampler again
                    del self._members[name]
                    member.leave()
                    self._work.start(member.close())
                if name not in found:
                    self._router.forget(name)
                    url = member.address.base_url
                    self._note(f"the sampler at {url} is gone; what it had begun is sampled anew")
            for name, address in found.items():
                if name not in self._members:
                    is_late = self._directory is not None and bool(self._members)
                    self._members[name] = member = _Member(address, self._connect(address))
                    self._work.start(self._admit(member, is_late))
            await asyncio.sleep(POLL_S)

    def _admit_again(self, member: _Member) -> None:
        if member.is_ready:
            member.is_ready = False
            self._work.start(self._admit(member))

    async def _admit(self, member: _Member, is_late: bool = False) -> None:
        """Make a new or restarted sampler load the newest weights. With `is_late`, log that the sampler has joined."""
        try:
            await self._give_newest(member)
            if is_late:
                self._note(f"the sampler at {member.address.base_url} takes part from now on")
        except _Gone:
            pass
        except UserError as error:
            member.failure, member.failed_s = error, time.monotonic()
            if any(one.is_ready for one in self._members.values()):
                self._note(f"{error} Others go on without it.")
        self._changed.set()

    async def _give_newest(self, member: _Member) -> None:
        """Make a sampler load the newest weights, unless it has them, and mark it as ready. Raises UserError if it
        cannot load them."""
        client = member.client
        held = await member.ask(client.check())
        async with self._giving:
            is_current = client.has_weights and held == str(self.version)
            if self._directory is not None and not is_current:
                await member.ask(client.give_weights(self._directory, self.version))
            member.is_ready = True

    async def _check(self) -> None:
        await self._choose([])
        for member in [*self._members.values()]:
            if member.is_ready:
                with suppress(_Gone):
                    await member.ask(member.client.check_unused())

    async def _update(self, directory: Path, version: int) -> None:
        async with self._giving:
            ready = [member for member in self._members.values() if member.is_ready]
            gave = [member.ask(member.client.give_weights(directory, version)) for member in ready]
            for member, error in zip(ready, await asyncio.gather(*gave, return_exceptions=True), strict=True):
                if isinstance(error, _Gone) or error is None:
                    continue
                if not (isinstance(error, Silent) and self._give_up(member, error)):
                    raise error
            # Update the version last, because all later requests rely on it.
            self._directory, self.version = directory, version
