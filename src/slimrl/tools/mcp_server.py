"""Calls the tools of an MCP server. The server is a command, which is started once for all episodes, or it is at a URL.

If a call takes too long or the tool refuses it, the policy reads an error text. If a server dies during calls or does
not start, the rollouts that wait for these calls fail, and the next call restarts the server. The server stops with
this process.
"""

import asyncio
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from slimrl.errors import RolloutError, UserError, describe, require
from slimrl.io.loop_thread import LoopTasks
from slimrl.tools.base import ToolError, TypedTool

START_S = 60.0  # seconds to start a server and list its tools
MAX_RESULT_CHARS = 100_000  # the policy's limit in tokens is applied elsewhere
MAX_PAGES = 100  # maximum number of pages of a list of tools


@dataclass(frozen=True, slots=True)
class McpSettings:
    """The settings of an MCP server. `mcp` is its command or URL. `only` names the tools to use; if it is empty, all
    tools are used.

    A command receives the environment variables that `env` names, and also PATH, HOME and similar variables. A call may
    take `timeout_s` seconds.
    """

    mcp: str
    only: list[str] = field(default_factory=list)
    env: list[str] = field(default_factory=list)
    timeout_s: float = 30.0


class McpServer:
    """An MCP server. The first call of `tools` starts it. Its connection belongs to the event loop of the process."""

    def __init__(self, settings: McpSettings) -> None:
        self._settings = settings
        if settings.env and _is_url(settings.mcp):
            raise UserError(f"`env` is for a command, and the MCP server `{settings.mcp}` runs already.")
        if missing := [name for name in settings.env if name not in os.environ]:
            raise UserError(f"the MCP server `{settings.mcp}` is to get the variable {missing[0]}, which is not set.")
        self._package = require("mcp", "mcp", "a tool of an MCP server")
        self._tasks = LoopTasks()
        self._ready: asyncio.Future[Any] | None = None  # the connected client
        self._holder: Future[None] | None = None  # the task that keeps the connection open

    def tools(self) -> list[TypedTool]:
        """Return the server's tools. Raise UserError if the server does not start, or lacks a tool of `only`."""
        where = self._settings.mcp
        try:
            found = self._tasks.wait(asyncio.wait_for(self._list(), START_S))
        except UserError:
            raise
        except Exception as error:
            said = f"it did not answer in {START_S:g} s" if isinstance(error, TimeoutError) else describe(_cause(error))
            raise UserError(f"the MCP server `{where}` does not work: {said}.") from error
        known = [tool.__name__ for tool in found]
        if missing := [name for name in self._settings.only if name not in known]:
            raise UserError(f"the MCP server `{where}` has no tool `{missing[0]}`, but {', '.join(known)}.")
        return [tool for tool in found if not self._settings.only or tool.__name__ in self._settings.only]

    def close(self) -> None:
        """Close the connection, and stop the server if it is a command."""
        self._tasks.close()

    async def _list(self) -> list[TypedTool]:
        client, cursor, found = await asyncio.shield(self._connection()), None, []
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            for tool in page.tools:
                call = partial(self._call, tool.name)
                found.append(TypedTool(tool.name, tool.description or "", tool.input_schema, call))
            cursor = page.next_cursor
            if not cursor:
                break
        return found

    async def _call(self, tool: str, **arguments: Any) -> str:
        """Call the tool and return the text of its result. This coroutine may be awaited in any event loop."""
        return await self._tasks.run(self._ask(tool, arguments))

    async def _ask(self, tool: str, arguments: dict[str, Any]) -> str:
        ready, timeout_s = self._connection(), self._settings.timeout_s
        try:
            client = await asyncio.wait_for(asyncio.shield(ready), START_S)
            result = await asyncio.wait_for(client.session.send_request(*self._request(tool, arguments)), timeout_s)
        except Exception as error:
            was_called = ready.done() and not ready.exception()
            if was_called and isinstance(error, TimeoutError):
                raise ToolError(f"{tool}: no answer in {timeout_s:g} s.") from None
            if was_called and self._is_refusal(error):
                raise ToolError(f"{tool}: {error!s:.2000}") from error
            if self._ready is ready:  # otherwise another call has already restarted the server
                self._disconnect()
            cause = describe(_cause(error)) if ready.done() else f"it did not start in {START_S:g} s"
            raise RolloutError("tool_server_died", f"the MCP server of `{tool}` is gone: {cause}") from error
        text = text_of(result)
        if result.is_error:
            raise ToolError(f"{tool}: {text or 'it failed, and did not say why'}")
        return text

    def _request(self, tool: str, arguments: dict[str, Any]) -> tuple[Any, Any]:
        """Return the request of a call and the type of its result, to send without `Client.call_tool`. That method
        refuses a result that does not fit the tool's `outputSchema`, although its text is useful for the policy."""
        types = self._package.types
        params = types.CallToolRequestParams(name=tool, arguments=arguments)
        return types.CallToolRequest(params=params), types.CallToolResult

    def _is_refusal(self, error: Exception) -> bool:
        """Return True if a running server refused a call, or sent a malformed result (pydantic raises ValueErrors)."""
        if isinstance(error, self._package.MCPError):
            return bool(error.code != self._package.types.CONNECTION_CLOSED)
        return isinstance(error, ValueError | RuntimeError)

    def _disconnect(self) -> None:
        """Drop the connection, and stop its server if it still runs."""
        self._ready = None
        if self._holder:
            self._holder.cancel()

    def _connection(self) -> "asyncio.Future[Any]":
        """Return the future of the connected client. The first call connects, and so does a call after the server has
        died."""
        if self._ready is None or (self._ready.done() and self._ready.exception()):
            self._ready = asyncio.get_running_loop().create_future()
            self._holder = self._tasks.start(self._hold(self._ready))
        return self._ready

    async def _hold(self, ready: "asyncio.Future[Any]") -> None:
        """Connect, store the client in `ready`, and keep the connection open until this task is cancelled. The package
        requires that the same task opens and closes a connection."""
        try:
            async with self._package.Client(self._target()) as client:
                ready.set_result(client)
                await asyncio.Event().wait()
        except Exception as error:
            if not ready.done():
                ready.set_exception(error)

    def _target(self) -> Any:
        where = self._settings.mcp
        if _is_url(where):
            return where
        command, *arguments = shlex.split(where)
        variables = {name: os.environ[name] for name in self._settings.env}
        return self._package.StdioServerParameters(command=command, args=arguments, env=variables)


def _is_url(where: str) -> bool:
    return where.startswith(("http://", "https://"))


def text_of(result: Any) -> str:
    """Return the text of a tool's result, cut if it is too long."""
    content = [part.model_dump() for part in result.content]
    text = read_content(content, result.structured_content)
    shown = text[:MAX_RESULT_CHARS].encode("utf-8", "replace").decode()
    return shown if len(text) <= MAX_RESULT_CHARS else f"{shown} [...]"


def read_content(content: Sequence[Any], structured: object) -> str:
    """Return the text of a result: the texts of its parts. If no part has a text, add `structured` as JSON.

    >>> read_content([{"type": "text", "text": ""}], {"t": 21.5}), read_content([{"type": "text", "text": "21.5"}], {})
    ('{"t": 21.5}', '21.5')
    """
    parts = [part for part in content if isinstance(part, Mapping)]
    texts = [_part_text(part) for part in parts]
    if structured is not None and not any(str(part.get("text", "")).strip() for part in parts):
        texts = [*filter(str.strip, texts), json.dumps(structured, ensure_ascii=False)]
    return "\n".join(texts)


def _part_text(part: Mapping[str, Any]) -> str:
    """Return a part of a result as text. A link becomes its name and address. Any other part without text, such as an
    image, becomes the name of its type."""
    match part:
        case {"text": str(text)}:
            return text
        case {"type": "resource", "resource": {**resource}}:
            return str(resource.get("text") or f"[resource {resource.get('uri')}]")
        case {"type": "resource_link"}:
            about = f": {part['description']}" if part.get("description") else ""
            return f"[{part.get('title') or part.get('name')}]({part.get('uri')}){about}"
    return f"[{part.get('type')}]"


def _cause(error: BaseException) -> BaseException:
    """Return the first error in an exception group, also in nested groups; any other error unchanged."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
