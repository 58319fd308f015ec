"""Serves a sandbox over HTTP: `POST /execute` and `GET /health`. This module does not isolate code.

The server needs the extra `server`. `python -m slimrl_sandbox` runs it; `make_app` is for tests and other servers.
"""

import asyncio
import math
import socket
from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path

from slimrl.errors import UserError, install_hint
from slimrl_sandbox.base import Sandbox
from slimrl_sandbox.client import Reply

try:
    from fastapi import FastAPI, Request
    from fastapi.responses import JSONResponse, Response
    from pydantic import BaseModel, ConfigDict, Field

    from slimrl.io.http_access import Access
    from slimrl_serve.http.guard import Guard, run_unless_gone
    from slimrl_serve.http.server import HttpServer, listen
except ModuleNotFoundError as error:
    raise UserError(
        f"The sandbox's server needs the package {error.name}, which is not installed. Install the extra: "
        f"{install_hint('server')}."
    ) from None

MAX_BODY_BYTES = 2**20
MAX_QUEUE = 1000  # requests that run or wait
RETRY_AFTER_S = 1
GRACE_S = 3  # after a stop request, wait this long for running requests


class ExecuteBody(BaseModel):
    """The body of `/execute`: code, and a session whose files are in the working directory. An empty `session_id`
    means no session."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    code: str
    session_id: str = Field(default="", max_length=200)
    timeout_s: float = Field(default=0, ge=0, description="At most this long; 0 is as long as the server allows.")


def make_app(sandbox: Sandbox, token: str, forwarders: Collection[str] = ()) -> FastAPI:
    """Return the application. Without a `token`, it answers programs on this machine and at the addresses `forwarders`,
    but not web pages."""
    app, places = FastAPI(title="slimrl sandbox", docs_url=None, redoc_url=None), asyncio.Semaphore(MAX_QUEUE)
    app.add_middleware(
        Guard,
        access=Access(token, "SANDBOX_TOKEN", forwarders),
        max_body_bytes=MAX_BODY_BYTES,
        respond=lambda refusal: _error(refusal.status, refusal.message, refusal.headers),
    )

    @app.exception_handler(UserError)
    async def explain(_request: Request, error: UserError) -> Response:
        return _error(503, str(error))

    @app.get("/health")
    async def health() -> Reply:
        """Return the server's status."""
        return {"status": "ok"}

    @app.post("/execute")
    async def execute(body: ExecuteBody, request: Request) -> Response:
        """Run code and return the result; errors of the code are part of it. If the client leaves, the code ends."""
        if places.locked():
            full = f"The queue is full: {MAX_QUEUE} requests run or wait. Come back later."
            return _error(503, full, {"Retry-After": str(RETRY_AFTER_S)})
        async with places:
            work = sandbox.run(body.code, body.session_id, body.timeout_s or math.inf)
            return JSONResponse(asdict(await run_unless_gone(work, request.receive)))

    return app


def gateways(routes: Path = Path("/proc/net/route")) -> frozenset[str]:
    """Return the addresses of the default gateways. In a container, the gateway is the container engine: if the host
    connects to a published port, the connection has the gateway's address. Other machines and containers keep their own
    addresses."""
    # The columns are interface, destination, gateway and others; addresses are hexadecimal, their last byte first.
    rows = [line.split() for line in routes.read_text(encoding="utf-8").splitlines()[1:]]
    found = [bytes.fromhex(row[2])[::-1] for row in rows if int(row[1], 16) == 0]
    return frozenset(socket.inet_ntoa(address) for address in found)


def serve(app: FastAPI, host: str, port: int, num_descriptors: int = 0) -> None:
    """Serve until interrupted. `num_descriptors` is the number of files that the sandbox opens. Raises UserError if the
    port is taken."""
    with listen(host, port) as listening:
        server = HttpServer(app, listening, GRACE_S, num_descriptors)
        print(f"sandbox server on {server.address}", flush=True)
        server.run()


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": message}, status, headers)
