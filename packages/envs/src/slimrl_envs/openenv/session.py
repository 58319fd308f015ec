"""One session with an environment server: a WebSocket on which an environment is reset and stepped.

What comes from the server is checked here. Knows nothing of tasks and messages.
"""

import json
import math
import ssl
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from slimrl.errors import RolloutError, require, visible
from slimrl.io.http import BUSY, PASSING, HttpError, Peer
from slimrl.io.urls import is_this_machine
from slimrl_envs.openenv.address import session_url

MAX_MESSAGE = 8 << 20  # bytes, of one answer
CLOSE_S = 2.0
OPEN_S = 20.0
WRONG_ACTION, FULL = "VALIDATION_ERROR", "CAPACITY_REACHED"
MAX_FAULTS = 5


class Passing(HttpError):
    """A failure that may pass: the server starts, or all its sessions are taken."""

    def __init__(self, said: str) -> None:
        super().__init__(Peer("OpenEnv server", ""), "", said, "unreachable")


class WrongAction(Exception):
    """The server takes no such action. The text is for the policy to read."""


class Server(Protocol):
    """A server of environments. `sessions` is how many it allows at once, or 0 if unknown."""

    sessions: int

    def url(self) -> str:
        """Its address; a server of ours is started if it does not run."""

    def note_answer(self) -> None:
        """Notes that a session was answered."""

    def close(self) -> None:
        """Ends a server of ours."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What an environment answers to an action, or to a reset."""

    fields: dict[str, Any]
    reward: float
    done: bool


class Session:
    """A session, which is open from `connect` to `close`."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket

    @classmethod
    async def connect(cls, base: str) -> "Session":
        """A session with the server at an address. Raises Passing if it may work later, and RolloutError if not."""
        websockets = require("websockets", "openenv", "an OpenEnv server")
        client = require("websockets.asyncio.client", "openenv", "an OpenEnv server")

        class Direct(client.connect):  # type: ignore[misc,name-defined]
            """A connection that follows no redirect: it would lead to a server that the user has not named."""

            def process_redirect(self, exc: Exception) -> Exception:
                return exc

        url = session_url(base)
        proxy = None if is_this_machine(urlsplit(url).hostname or "") else True
        try:
            socket = await Direct(
                url,
                proxy=proxy,
                max_size=MAX_MESSAGE,
                compression=None,  # a few bytes could unpack to any number
                open_timeout=OPEN_S,
                close_timeout=CLOSE_S,
                ping_interval=None,  # an environment that computes answers no ping, and steps have a limit of their own
            )
        except websockets.exceptions.InvalidStatus as error:
            response = error.response
            if response.status_code in BUSY | PASSING:
                raise Passing(f"{url} answers with status {response.status_code}") from error
            place = response.headers.get("Location", "")
            to = f" and points to {place!r:.200}, which is not followed" if place else ""
            raise RolloutError(
                "environment_error", f"{url} opens no session: status {response.status_code}{to}"
            ) from error
        except ssl.SSLError as error:
            raise RolloutError("environment_error", f"{url}: {error!r:.300}") from error
        except (OSError, TimeoutError, websockets.exceptions.WebSocketException, EOFError) as error:
            raise Passing(f"no session at {url}: {error!r:.300}") from error
        return cls(socket)

    async def reset(self, arguments: dict[str, Any]) -> Observed:
        """A fresh environment's first observation. Raises Passing if the server has no room, or ends."""
        try:
            return await self._ask("reset", arguments)
        except WrongAction as error:
            raise RolloutError("environment_error", f"the server refuses to reset: {error}") from error
        except RolloutError as error:
            if error.reason == "environment_died":  # nothing was played yet
                raise Passing(error.detail) from error
            raise

    async def step(self, action: dict[str, Any]) -> Observed:
        """The answer to an action. Raises WrongAction if it is none."""
        try:
            return await self._ask("step", action)
        except Passing as error:
            raise RolloutError("environment_error", error.said) from error

    async def list_tools(self) -> dict[str, dict[str, Any]]:
        """The JSON schemas of the tools' arguments and their descriptions, by name: `{name: {"description": ...,
        "parameters": ...}}`."""
        answer = await self._exchange(
            {"type": "mcp", "data": {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}}
        )
        result = answer.get("data") if answer.get("type") == "mcp" else None
        tools = result["result"].get("tools") if isinstance(result, dict) and _is_dict(result.get("result")) else None
        if not isinstance(tools, list) or not tools:
            raise RolloutError("environment_error", f"the server lists no tools: {answer!r:.300}")
        return dict(_tool(tool) for tool in tools)

    async def close(self) -> None:
        """Ends the session, also one that is broken."""
        exceptions = require("websockets.exceptions", "openenv", "an OpenEnv server")
        with suppress(OSError, exceptions.WebSocketException):  # it may have ended already
            await self._socket.send('{"type": "close"}')
            await self._socket.close()

    async def _ask(self, kind: str, data: dict[str, Any]) -> Observed:
        answer = await self._exchange({"type": kind, "data": data})
        if answer.get("type") != "observation" or not isinstance(answer.get("data"), dict):
            raise RolloutError("environment_error", f"the server answers no observation, but {answer!r:.300}")
        return _observation_of(answer["data"])

    async def _exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        exceptions = require("websockets.exceptions", "openenv", "an OpenEnv server")
        with suppress(OSError, exceptions.ConnectionClosed):  # why it has ended may have been said before
            await self._socket.send(json.dumps(message))
        try:
            text = await self._socket.recv()
        except (OSError, exceptions.ConnectionClosed) as error:
            sent = getattr(error, "sent", None)
            if sent is not None and sent.code == 1009:
                raise RolloutError("environment_error", f"an answer is larger than {MAX_MESSAGE} bytes") from error
            raise RolloutError("environment_died", f"the server ended the session: {error!s:.300}") from error
        return _raise_error(_parse(text))


def _is_dict(value: object) -> bool:
    return isinstance(value, dict)


def _parse(text: str | bytes) -> dict[str, Any]:
    try:
        answer = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise RolloutError("environment_error", f"the server answers no JSON object, but {text!r:.300}")
    return answer


def _raise_error(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer, unless it is an error, which is raised."""
    if answer.get("type") != "error":
        return answer
    data = answer["data"] if isinstance(answer.get("data"), dict) else {}
    said, code = visible(str(data.get("message", answer)), 1000), data.get("code")
    if code == WRONG_ACTION:
        raise WrongAction(_faults(data.get("errors")) or said)
    if code == FULL:
        raise Passing(f"all sessions of the server are taken ({said})")
    raise RolloutError("environment_error", f"the server answers with an error: {said} ({code!r:.60})")


def _faults(errors: object) -> str:
    """What is wrong with an action, in the server's words."""
    found = [one for one in errors if isinstance(one, dict)] if isinstance(errors, list) else []
    return "; ".join(
        f"{'.'.join(map(str, one['loc'])) if isinstance(one.get('loc'), list) else 'action'}: "
        f"{visible(str(one.get('msg', 'wrong')), 100)}"
        for one in found[:MAX_FAULTS]
    )


def _observation_of(data: dict[str, Any]) -> Observed:
    fields, reward, done = data.get("observation"), data.get("reward"), data.get("done", False)
    if not isinstance(fields, dict):
        raise RolloutError("environment_error", f"an observation must be an object, not {fields!r:.100}")
    if not isinstance(done, bool):
        raise RolloutError("environment_error", f"`done` must be true or false, not {done!r:.100}")
    if reward is None:
        reward = 0.0
    if not isinstance(reward, (bool, int, float)):
        raise RolloutError("environment_error", f"`reward` must be a number, not {reward!r:.100}")
    try:
        reward = float(reward)
    except OverflowError:
        reward = math.inf
    if not math.isfinite(reward):
        raise RolloutError("nonfinite_reward", f"the environment gave reward {reward}")
    return Observed(fields, reward, done)


def _tool(tool: object) -> tuple[str, dict[str, Any]]:
    fields = tool if isinstance(tool, dict) else {}
    name, schema = fields.get("name"), fields.get("inputSchema", fields.get("input_schema"))
    if not isinstance(name, str) or not isinstance(schema, dict):
        raise RolloutError("environment_error", f"a tool has no name or no schema: {tool!r:.200}")
    return name, {"description": str(fields.get("description") or ""), "parameters": schema}
