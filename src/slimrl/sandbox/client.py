"""The module has the client of a sandbox's server, on another machine or in a container."""

import asyncio
import math
import random
from time import monotonic
from types import TracebackType
from typing import Any, Self

from slimrl.errors import UserError, install_hint
from slimrl.io.http import backoff_s, retry_after_s
from slimrl.sandbox.base import Call, Execution

try:
    import httpx
except ModuleNotFoundError:
    raise UserError(
        "The sandbox's client needs the package httpx, which is not installed. Install the extra: "
        f"{install_hint('server')}."
    ) from None

Reply = dict[str, Any]
_CONNECT_S = 10.0
_BUSY_S = 600.0  # how long a server may refuse requests because its queue is full


class HttpSandbox:
    """A sandbox that sends each execution to the server at `address`, such as http://127.0.0.1:8080.

    Only connecting has a time-out: executions and tool calls may queue on the server for long. Where its queue is full,
    they are sent again for up to ten minutes.

    Raises:
        UserError: from every method but `is_up`, if the server does not answer or refuses the request; the text quotes
            its reply.
    """

    def __init__(self, address: str, token: str = "") -> None:
        self._address = address.rstrip("/")
        self._http = httpx.AsyncClient(
            base_url=self._address,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx.Timeout(None, connect=_CONNECT_S),
            limits=httpx.Limits(max_connections=None),
            trust_env=False,  # HTTP_PROXY must not take over requests to the loopback address
        )

    async def run(self, code: str, session_id: str = "", timeout_s: float = math.inf) -> Execution:
        """Run code on the server and return the result."""
        timeout = 0 if math.isinf(timeout_s) else timeout_s  # JSON has no infinity; 0 stands for the server's own limit
        reply = await self._send("POST", "/execute", {"code": code, "session_id": session_id, "timeout_s": timeout})
        calls = tuple(Call(**call) for call in reply.pop("calls", ()))
        return Execution(**reply, calls=calls)

    async def is_up(self) -> bool:
        """Whether a sandbox's server answers at the address."""
        try:
            reply = await self._http.get("/health", timeout=_CONNECT_S)
            found = reply.json()
            return bool(reply.is_success and isinstance(found, dict) and found.get("status") == "ok")
        except (httpx.HTTPError, httpx.InvalidURL, ValueError):  # nobody, or somebody else, who speaks no JSON
            return False

    async def memory(self) -> str:
        """How the server limits the memory of all of a program's processes: "by cgroup" or "by polling"."""
        return str((await self._send("GET", "/health"))["memory"])

    async def tools(self) -> list[str]:
        """The names of the server's tools."""
        return [tool["name"] for tool in (await self._send("GET", "/tools"))["tools"]]

    async def call(self, name: str, argument: str) -> Reply:
        """Call one tool and return `{"result": ...}`, or `{"error": text}` if it failed."""
        return await self._send("POST", f"/tools/{name}", {"argument": argument})

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _send(self, method: str, path: str, body: Reply | None = None) -> Reply:
        started, tries = monotonic(), 0
        try:
            while _is_full(response := await self._http.request(method, path, json=body)):
                tries += 1
                if monotonic() - started > _BUSY_S:
                    break
                await asyncio.sleep(max(backoff_s(tries, random.random()), retry_after_s(response.headers)))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UserError(
                f"the sandbox's server at {self._address} does not answer ({type(error).__name__}: {error}). Start it "
                "with `uv run python scripts/run_environment.py`, which gives it the tools of wiki-search, or with "
                "`python -m slimrl.sandbox`."
            ) from None
        if response.is_success:
            reply: Reply = response.json()
            return reply
        raise UserError(f"the sandbox's server at {self._address} refused {method} {path}: {response.text[:1000]}")


def _is_full(response: httpx.Response) -> bool:
    return response.status_code == 503 and "Retry-After" in response.headers
