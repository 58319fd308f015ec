"""Opens sessions with one server: finds what its actions are, waits for a free session, and tries again."""

import asyncio
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slimrl.errors import RolloutError, UserError
from slimrl.io.http import HttpError, Limits, Peer, ask_again
from slimrl_envs.openenv.actions import Reader, Schema, act_tool, is_tool_schema, mcp_reader_of, reader_of
from slimrl_envs.openenv.pages import description_of, schema_of
from slimrl_envs.openenv.server import Server
from slimrl_envs.openenv.session import Observed, Session


@dataclass(frozen=True, slots=True)
class Style:
    """How the policy is to act; see `taskset.OpenEnv`."""

    format: str
    tag: str
    field: str
    instructions: str


class Connection:
    """A server and the places in it. At most `max_concurrent` sessions are open, where it is not 0, nor more than the
    server is known to allow; an episode waits `timeout_s` seconds for one."""

    def __init__(self, server: Server, style: Style, max_concurrent: int, timeout_s: float) -> None:
        self._server, self._style = server, style
        self._max_concurrent, self._timeout_s = max_concurrent, timeout_s
        self._preparing = threading.Lock()
        self._schema: Schema = {}
        self._description = ""
        self._reader: Reader | None = None  # None also if each session has its own tools
        # A semaphore belongs to an event loop, and every step of a run may have a new one.
        self._places: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            weakref.WeakKeyDictionary()
        )

    def prepare(self) -> None:
        """Start the server, if it is ours, and read the schema of its actions. Raises UserError if it cannot."""
        with self._preparing:
            if self._schema:
                return
            base = self._server.url()
            schema = schema_of(base)
            self._description = self._style.instructions or description_of(base)
            if not is_tool_schema(schema):
                self._reader = reader_of(act_tool(schema), self._style.format, self._style.tag, self._style.field)
            elif self._style.format == "text" or self._style.field:
                raise UserError(
                    'openenv: the actions call tools: take the `format` "native" or "json", and no `text_field`.'
                )
            self._schema = schema

    async def begin(self, arguments: Mapping[str, Any]) -> tuple[Session, Observed, Reader]:
        """A session that is reset with the arguments, what it shows first, and the reader of replies. Raises
        RolloutError if there is none in time."""
        await asyncio.to_thread(self.prepare)
        places = self._places_here()
        try:
            async with asyncio.timeout(self._timeout_s):
                await places.acquire()
        except TimeoutError as error:
            raise RolloutError(
                "environment_busy",
                f"no session was free within connect_timeout_s = {self._timeout_s:g} s; fewer episodes at once need "
                "fewer sessions, and so do shorter ones",
            ) from error
        try:
            return await self._open(dict(arguments))
        except BaseException:
            places.release()
            raise

    def leave(self) -> None:
        """Gives back the place of a session that has begun."""
        self._server.note_answer()
        self._places_here().release()

    def opening(self, reader: Reader) -> str:
        """The instructions that the policy reads first."""
        return "\n\n".join(text for text in (self._description, reader.instructions()) if text)

    def _places_here(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if loop not in self._places:
            known = [number for number in (self._max_concurrent, self._server.sessions) if number]
            self._places[loop] = asyncio.Semaphore(min(known, default=1 << 20))
        return self._places[loop]

    async def _open(self, arguments: dict[str, Any]) -> tuple[Session, Observed, Reader]:
        peer, limits = Peer("OpenEnv server", ""), Limits(patience_s=self._timeout_s)
        try:
            return await ask_again(peer, lambda _: self._try_open(arguments), limits)
        except HttpError as error:
            raise RolloutError(
                "environment_busy",
                f"{error.said}, within connect_timeout_s = {self._timeout_s:g} s. A server with few sessions needs "
                "`max_concurrent`",
            ) from error

    async def _try_open(self, arguments: dict[str, Any]) -> tuple[Session, Observed, Reader]:
        try:
            base = await asyncio.to_thread(self._server.url)
        except UserError as error:  # it could be started once
            raise RolloutError("environment_died", str(error)) from error
        session = await Session.connect(base)
        try:
            observed = await session.reset(arguments)
            if self._reader:
                return session, observed, self._reader
            return session, observed, mcp_reader_of(await session.list_tools(), self._style.format, self._style.tag)
        except BaseException:
            await session.close()
            raise
