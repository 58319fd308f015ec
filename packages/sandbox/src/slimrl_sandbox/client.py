"""The module has the client of a sandbox's server, on another machine or in a container."""

import math
from types import TracebackType
from typing import Any, Self

from slimrl.errors import UserError
from slimrl.io.http import HttpClient, HttpError, Limits, Peer, ask_again
from slimrl_sandbox.base import Call, Execution

Reply = dict[str, Any]
_BUSY_S = 600.0  # maximum time for a request to wait for a slot, with retries while the queue is full
_NUM_CONCURRENT = 4096
_ADVICE = (
    "Start it with `uv run python scripts/run_environment.py`, which gives it the tools of wiki-search, or with "
    "`python -m slimrl_sandbox`."
)


class HttpSandbox:
    """A sandbox that sends each execution to the server at `address`, such as http://127.0.0.1:8080.

    Executions and tool calls may wait on the server for ten minutes. While its queue is full, they are sent again.

    Raises:
        UserError: if the server does not answer or refuses the request; the message quotes its reply.
    """

    def __init__(self, address: str, token: str = "") -> None:
        self._address = address.rstrip("/")
        # HTTP_PROXY must not redirect requests to a local address such as a container's.
        self._peer = Peer("sandbox's server", self._address, token, _ADVICE, uses_proxy=False)
        self._http = HttpClient(self._peer, _NUM_CONCURRENT)

    async def run(self, code: str, session_id: str = "", timeout_s: float = math.inf) -> Execution:
        """Run code on the server and return the result."""
        timeout = 0 if math.isinf(timeout_s) else timeout_s  # JSON has no infinity; 0 stands for the server's own limit
        body = {"code": code, "session_id": session_id, "timeout_s": timeout}
        reply = await self.send("POST", "/execute", body, _BUSY_S + timeout)
        calls = tuple(Call(**call) for call in reply.pop("calls", ()))
        return Execution(**reply, calls=calls)

    async def end_session(self, session_id: str) -> None:
        """Close the connections. The server deletes the files of old sessions itself."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def send(self, method: str, path: str, body: Reply | None = None, within_s: float = _BUSY_S) -> Reply:
        """Send a request, wait at most `within_s` seconds, and return the server's reply."""
        url, limits = f"{self._address}{path}", Limits(within_s, patience_s=0.0)
        try:
            reply: Reply = await ask_again(self._peer, lambda _: self._http.send(method, url, body), limits)
        except HttpError as error:
            if error.status:
                raise UserError(
                    f"the sandbox's server at {self._address} refused {method} {path}: it {error.said}"
                ) from None
            raise
        return reply
