"""One session with an environment server: a WebSocket that resets and steps one environment.

This module checks the messages of the server. It does not depend on tasks or chats.
"""

import json
import math
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field, ValidationError

from slimrl.errors import RolloutError, require, visible
from slimrl.io.http import BUSY, PASSING, HttpError, Peer
from slimrl.io.text import parse_json
from slimrl.io.urls import is_this_machine
from slimrl.tools.base import ToolError, TypedTool
from slimrl_envs.openenv.actions import mcp_tool

client = require("websockets.asyncio.client", "openenv", "an OpenEnv server")
exceptions = require("websockets.exceptions", "openenv", "an OpenEnv server")

MAX_MESSAGE = 8 << 20  # bytes, of one answer
CLOSE_S = 2.0
OPEN_S = 20.0
M = TypeVar("M", bound=BaseModel)
PEER = Peer("OpenEnv server", "")
WRONG_ACTION, FULL = "VALIDATION_ERROR", "CAPACITY_REACHED"
MAX_FAULTS = 5


class Observed(BaseModel):
    """The answer of an environment to an action or to a reset."""

    model_config = ConfigDict(strict=True, frozen=True)

    observation: dict[str, Any]
    reward: bool | float | None = None
    done: bool = False


class _Fault(BaseModel):
    loc: list[str | int] = ["action"]
    msg: str = "wrong"


class _Error(BaseModel):
    message: str = ""
    code: str = ""
    errors: list[_Fault] = []


class _Tool(BaseModel):
    name: str
    description: str | None = None
    parameters: dict[str, Any] = Field(validation_alias=AliasChoices("inputSchema", "input_schema"))


class _ToolList(BaseModel):
    tools: list[_Tool] = Field(min_length=1, validation_alias=AliasPath("result", "tools"))


class Session:
    """A session with an environment server. It is open from `connect` to `close`."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket

    @classmethod
    async def connect(cls, base: str) -> "Session":
        """Open a session with the server at `base`. Raise HttpError if a retry may succeed, else RolloutError."""
        url = f"ws{base.removeprefix('http')}/ws"
        proxy = None if is_this_machine(urlsplit(url).hostname or "") else True
        try:
            socket = await client.connect(
                url,
                proxy=proxy,
                max_size=MAX_MESSAGE,
                compression=None,  # a small compressed message could expand to any size
                open_timeout=OPEN_S,
                close_timeout=CLOSE_S,
                ping_interval=None,  # a busy environment answers no pings, and steps have their own time limit
            )
        except exceptions.InvalidStatus as error:
            status = error.response.status_code
            if status in BUSY | PASSING:
                raise passing(f"answers with status {status}") from error
            raise RolloutError("environment_error", f"{url} opens no session: status {status}") from error
        except (OSError, TimeoutError, exceptions.WebSocketException, EOFError) as error:
            raise passing(f"opens no session: {error!r:.300}") from error
        return cls(socket)

    async def reset(self, arguments: dict[str, Any]) -> Observed:
        """Reset the environment and return its first observation. Raise HttpError if the server has no free session or
        stops, and RolloutError if the server refuses the reset."""
        try:
            return await self._ask("reset", arguments)
        except ToolError as error:
            raise RolloutError("environment_error", f"the server refuses to reset: {error}") from error
        except RolloutError as error:
            if error.reason == "environment_died":  # no action was played yet, so a retry is safe
                raise passing(error.detail) from error
            raise

    async def step(self, action: dict[str, Any]) -> Observed:
        """Return the answer to an action. Raise ToolError if the server refuses the action."""
        try:
            return await self._ask("step", action)
        except HttpError as error:
            raise RolloutError("environment_error", error.said) from error

    async def list_tools(self) -> dict[str, TypedTool]:
        """Return the environment's tools by name."""
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        tools = _read(_ToolList, await self._exchange("mcp", request), "no list of tools").tools
        return {tool.name: mcp_tool(tool.name, tool.description or "", tool.parameters) for tool in tools}

    async def close(self) -> None:
        """Close the session, even if it is broken."""
        with suppress(OSError, exceptions.WebSocketException):  # it may be closed already
            await self._socket.send('{"type": "close"}')
            await self._socket.close()

    async def _ask(self, kind: str, data: dict[str, Any]) -> Observed:
        observed = _read(Observed, await self._exchange(kind, data), "no observation")
        if not math.isfinite(observed.reward or 0.0):
            raise RolloutError("nonfinite_reward", f"the environment gave reward {observed.reward}")
        return observed

    async def _exchange(self, kind: str, data: dict[str, Any]) -> Any:
        """Send a message of the type `kind` and return the data of the answer. Raise ToolError for a refused action,
        HttpError if the server is full, and RolloutError for other failures."""
        with suppress(OSError, exceptions.ConnectionClosed):  # the server may have sent the reason before it closed
            await self._socket.send(json.dumps({"type": kind, "data": data}))
        try:
            text = await self._socket.recv()
        except (OSError, exceptions.ConnectionClosed) as error:
            raise RolloutError("environment_died", f"the server ended the session: {error!s:.300}") from error
        answer = parse_json(text)
        if not isinstance(answer, dict):
            raise RolloutError("environment_error", f"the server answers no JSON object, but {text!r:.300}")
        if answer.get("type") == "error":
            raise _failure(_read(_Error, answer.get("data"), "a malformed error"))
        return answer.get("data")


def passing(said: str) -> HttpError:
    """Return the error for a request that may succeed later, for example while the server starts or all its sessions
    are in use. `said` describes the failure."""
    return HttpError(PEER, "", said, "unreachable")


def _read(model: type[M], value: object, fault: str) -> M:
    """Return `value` as an instance of `model`. Raise RolloutError with the text `fault` if `value` is invalid."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        found = f"{value!r:.300}{f' ({place:.100})' if place else ''}"
        raise RolloutError("environment_error", f"the server answers {fault}, but {found}") from error


def _failure(error: _Error) -> Exception:
    text = visible(error.message, 1000)
    if error.code == WRONG_ACTION:
        faults = (f"{'.'.join(map(str, one.loc))}: {visible(one.msg, 100)}" for one in error.errors[:MAX_FAULTS])
        return ToolError("; ".join(faults) or text)
    if error.code == FULL:
        return passing(f"has no free session ({text})")
    return RolloutError("environment_error", f"the server answers with an error: {text} ({error.code!r:.60})")
