"""Defines the client of a sandbox's server. The server runs on another machine or in a container."""

import math
from typing import Any, Self

from slimrl.io.http import HttpClient, Limits, Peer, ask_again
from slimrl_sandbox.base import Call, Execution

Reply = dict[str, Any]
_BUSY_S = 600.0  # maximum time for a request to wait for a slot, with retries while the queue is full
_NUM_CONCURRENT = 4096
_ADVICE = (
    "`uv run python scripts/run_environment.py` starts one with the tools of wiki-search, and "
    "`python -m slimrl_sandbox` any other; the variable SANDBOX_TOKEN holds its token."
)


class HttpSandbox:
    """A sandbox that sends each execution to the server at `address`, such as http://127.0.0.1:8080.

    Executions may wait on the server for ten minutes. While the server's queue is full, requests are sent again.

    Raises:
        UserError: if the server does not answer or refuses the request; the message quotes its reply.
    """

    def __init__(self, address: str, token: str = "") -> None:
        # HTTP_PROXY must not redirect requests to a local address such as a container's.
        self._peer = Peer("sandbox's server", address.rstrip("/"), token, _ADVICE, uses_proxy=False)
        self._http = HttpClient(self._peer, _NUM_CONCURRENT)

    async def run(self, code: str, session_id: str = "", timeout_s: float = math.inf) -> Execution:
        """Run code on the server and return the result."""
        timeout = 0 if math.isinf(timeout_s) else timeout_s  # JSON has no infinity; 0 means the server's own limit
        body = {"code": code, "session_id": session_id, "timeout_s": timeout}
        url, limits = f"{self._peer.base_url}/execute", Limits(_BUSY_S + timeout, patience_s=0.0)
        reply: Reply = await ask_again(self._peer, lambda _: self._http.send("POST", url, body), limits)
        return Execution(**{**reply, "calls": tuple(Call(**call) for call in reply["calls"])})

    async def end_session(self, session_id: str) -> None:
        """Close the connections. The server deletes the files of old sessions itself."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()
