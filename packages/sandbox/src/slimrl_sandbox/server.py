"""The module serves a sandbox over HTTP: `POST /execute`, `GET /health`, and the tools. It does not isolate code.

It needs the extra `server`. `python -m slimrl_sandbox` runs it; `make_app` is for tests and other servers.
"""

import asyncio
import math
import socket
from collections.abc import Collection, Coroutine, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from slimrl.errors import UserError, install_hint, nearest
from slimrl.io.urls import is_loopback
from slimrl_sandbox.base import Sandbox, Tools, check_limits
from slimrl_sandbox.calls import answer_of, in_thread, writable
from slimrl_sandbox.client import Reply

try:
    from fastapi import FastAPI, Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse, Response
    from pydantic import BaseModel, ConfigDict, Field
    from starlette.exceptions import HTTPException

    from slimrl.io.http_access import Access, Refusal
    from slimrl_serve.http.guard import Guard, run_unless_gone
    from slimrl_serve.http.server import HttpServer, listen
except ModuleNotFoundError as error:
    raise UserError(
        f"The sandbox's server needs the package {error.name}, which is not installed. Install the extra: "
        f"{install_hint('server')}."
    ) from None

T = TypeVar("T")
MAX_BODY_BYTES = 2**20
MAX_QUEUE = 1000
RETRY_AFTER_S = 1
GRACE_S = 3  # after a stop request, wait this long for running requests


class ExecuteBody(BaseModel):
    """The body of `/execute`: code, and the session whose files are in its working directory; empty for no session."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    code: str
    session_id: str = Field(default="", max_length=200)
    timeout_s: float = Field(default=0, ge=0, description="At most this long; 0 is as long as the server allows.")


class CallBody(BaseModel):
    """The body of a tool call."""

    model_config = ConfigDict(extra="forbid", strict=True)
    argument: str


class Admission:
    """A limit on the number of requests: at most `max_queue` may run or wait at the same time."""

    def __init__(self, max_queue: int) -> None:
        check_limits(max_queue=max_queue)
        self._max_queue, self._num_open = max_queue, 0

    async def run(self, work: Coroutine[Any, Any, T], request: Request) -> T:
        """Return the result of `work`, which is cancelled if the client leaves. Raises HTTPException if the queue is
        full or the client has left."""
        if self._num_open >= self._max_queue:
            work.close()
            full = f"The queue is full: {self._num_open} requests run or wait, of at most max_queue. Come back later."
            raise HTTPException(503, full, {"Retry-After": str(RETRY_AFTER_S)})
        self._num_open += 1
        try:
            return await run_unless_gone(work, request.receive)
        finally:
            self._num_open -= 1


def make_app(
    sandbox: Sandbox,
    tools: Tools,
    token: str,
    forwarders: Collection[str] = (),
    max_queue: int = MAX_QUEUE,
) -> FastAPI:
    """Return the application. Without a token it answers programs of this machine, but no web page."""
    app, admission = FastAPI(title="slimrl sandbox", docs_url=None, redoc_url=None), Admission(max_queue)
    access = Access(token, "SANDBOX_TOKEN", forwarders)
    app.add_middleware(Guard, access=access, max_body_bytes=MAX_BODY_BYTES, respond=_respond)

    @app.exception_handler(HTTPException)
    async def tell(_request: Request, error: HTTPException) -> Response:
        paths = ". The paths are /execute, /health, /tools and /tools/NAME." if error.status_code in (404, 405) else ""
        return _error(error.status_code, f"{error.detail}{paths}", error.headers)

    @app.exception_handler(RequestValidationError)
    async def tell_what_is_wrong(_request: Request, error: RequestValidationError) -> Response:
        wrong = "; ".join(f"{'.'.join(map(str, found['loc']))}: {found['msg']}" for found in error.errors()[:5])
        return _error(422, f"The body is not what this path takes: {wrong}. /openapi.json has what it takes.")

    @app.get("/health")
    async def health() -> Reply:
        """Return the server's status."""
        return {"status": "ok"}

    @app.post("/execute")
    async def execute(body: ExecuteBody, request: Request) -> Reply:
        """Run code and return the result; errors of the code are part of it."""
        work = sandbox.run(body.code, body.session_id, body.timeout_s or math.inf)
        return asdict(await admission.run(work, request))

    @app.get("/tools")
    async def list_tools() -> Reply:
        """List the tools' names and descriptions."""
        return {"tools": [{"name": name, "description": (tool.__doc__ or "").strip()} for name, tool in tools.items()]}

    @app.post("/tools/{name}")
    async def call_tool(name: str, body: CallBody, request: Request) -> Response:
        """Call one tool and return its `result`, or its `error` if it failed."""
        if name not in tools:
            return _error(404, f"There is no tool `{name}`.{nearest(name, tools)}")
        argument = writable(body.argument)

        async def answer() -> Reply:
            work = in_thread(lambda: answer_of(tools, name, [argument], {}), f"slimrl-tool-{name}")
            return dict(await asyncio.wrap_future(work))

        return JSONResponse(await admission.run(answer(), request))

    @app.exception_handler(UserError)
    async def tell_what_to_do(_request: Request, error: UserError) -> Response:
        return _error(503, str(error))

    return app


def gateways(routes: Path = Path("/proc/net/route")) -> frozenset[str]:
    """Return the addresses of the default gateways. In a container the gateway is the engine: it forwards connections
    from this machine to a published port, while other machines and containers keep their own addresses."""
    if not routes.is_file():
        return frozenset()
    # The columns are interface, destination, gateway and others; addresses are hexadecimal, their last byte first.
    rows = [line.split() for line in routes.read_text(encoding="utf-8").splitlines()[1:]]
    found = [bytes.fromhex(row[2])[::-1] for row in rows if int(row[1], 16) == 0]
    return frozenset(socket.inet_ntoa(address) for address in found)


def serve(app: FastAPI, host: str, port: int, token: str, published: bool = False, num_descriptors: int = 0) -> None:
    """Serve until interrupted. `published` means that a container engine publishes the port, so only this machine can
    reach the host. `num_descriptors` is the number of files that the sandbox opens. Raises UserError if others could
    reach the server without a token, or the port is taken."""
    if not token and not published and not is_loopback(host):
        raise UserError(
            f"host = {host} can be reached from other machines, and without a token everyone there could run code. "
            "Set the variable SANDBOX_TOKEN, or leave the host at 127.0.0.1."
        )
    listening = listen(host, port)
    server = HttpServer(app, listening, GRACE_S, num_descriptors)
    with listening:
        print(f"sandbox server on {server.address}", flush=True)
        server.run()


def _respond(refusal: Refusal) -> Response:
    return _error(refusal.status, refusal.message, refusal.headers)


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": message}, status, headers)
