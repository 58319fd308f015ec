"""The module serves a sandbox over HTTP: `POST /execute`, `GET /health`, and the tools. It knows nothing of isolation.

It needs the extra `server`. `python -m slimrl.sandbox` runs it; `make_app` is for tests and other servers.
"""

import hmac
import math
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from urllib.parse import urlsplit

from slimrl.errors import UserError, install_hint, nearest
from slimrl.io.urls import is_loopback
from slimrl.sandbox.admission import Admission, Refused
from slimrl.sandbox.base import Sandbox, Tools
from slimrl.sandbox.channel import call, writable
from slimrl.sandbox.client import Reply

try:
    import uvicorn
    from fastapi import FastAPI, Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse, Response
    from pydantic import BaseModel, ConfigDict, Field
    from starlette.exceptions import HTTPException
except ModuleNotFoundError as error:
    raise UserError(
        f"The sandbox's server needs the package {error.name}, which is not installed. Install the extra: "
        f"{install_hint('server')}."
    ) from None

MAX_BODY_BYTES = 2**20
MAX_QUEUE = 1000
RETRY_AFTER_S = 1
# Longer than clients keep an idle connection (httpx: 5 s, uvicorn's default as well): if both ends close at the same
# moment, a request that is just being sent is lost.
KEEP_ALIVE_S = 60


class ExecuteBody(BaseModel):
    """The body of `/execute`: code, and the session whose files are in its working directory; an empty one has none."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    code: str
    session_id: str = Field(default="", max_length=200)
    timeout_s: float = Field(default=0, ge=0, description="At most this long; 0 is as long as the server allows.")


class CallBody(BaseModel):
    """The body of a tool call."""

    model_config = ConfigDict(extra="forbid", strict=True)
    argument: str


def make_app(
    sandbox: Sandbox,
    tools: Tools,
    token: str,
    forwarders: Collection[str] = (),
    max_queue: int = MAX_QUEUE,
    memory: str = "",
) -> FastAPI:
    """The application. Without a token it answers the programs of this machine, but no web page: see `_refusal`.
    `memory` is how the sandbox counts it, for whoever asks after the server's health."""
    admission = Admission(max_queue)
    app = FastAPI(title="slimrl sandbox", docs_url=None, redoc_url=None)

    @app.middleware("http")
    async def guard(request: Request, go_on: Callable[[Request], Awaitable[Response]]) -> Response:
        return _refusal(request, token, forwarders) or await go_on(request)

    @app.exception_handler(HTTPException)
    async def tell(_request: Request, error: HTTPException) -> Response:
        return _error(error.status_code, f"{error.detail}. The paths are /execute, /health, /tools and /tools/NAME.")

    @app.exception_handler(RequestValidationError)
    async def tell_what_is_wrong(_request: Request, error: RequestValidationError) -> Response:
        wrong = "; ".join(f"{'.'.join(map(str, found['loc']))}: {found['msg']}" for found in error.errors()[:5])
        return _error(422, f"The body is not what this path takes: {wrong}. /openapi.json has what it takes.")

    @app.get("/health")
    async def health() -> Reply:
        """Whether the server runs."""
        return {"status": "ok", "memory": memory}

    @app.post("/execute")
    async def execute(body: ExecuteBody, request: Request) -> Reply:
        """Run code and return the result; errors of the code are part of it."""
        work = sandbox.run(body.code, body.session_id, body.timeout_s or math.inf)
        return asdict(await admission.run(work, request.receive))

    @app.get("/tools")
    async def list_tools() -> Reply:
        """List the tools' names and descriptions."""
        return {"tools": [{"name": name, "description": (tool.__doc__ or "").strip()} for name, tool in tools.items()]}

    @app.post("/tools/{name}")
    async def call_tool(name: str, body: CallBody, request: Request) -> Response:
        """Call one tool and return its `result`, or the `error` by which it failed."""
        if name not in tools:
            return _error(404, f"There is no tool `{name}`.{nearest(name, tools)}")
        return JSONResponse(await admission.run(call(tools, name, writable(body.argument)), request.receive))

    @app.exception_handler(Refused)
    async def tell_why(_request: Request, error: Refused) -> Response:
        return _error(error.status, str(error), {"Retry-After": str(RETRY_AFTER_S)} if error.status == 503 else {})

    @app.exception_handler(UserError)
    async def tell_what_to_do(_request: Request, error: UserError) -> Response:
        return _error(503, str(error))

    return app


def gateways(routes: Path = Path("/proc/net/route")) -> frozenset[str]:
    """The addresses of the default gateways. In a container the gateway is the engine, which forwards to it what this
    machine sends to a published port; other machines and other containers keep addresses of their own."""
    if not routes.is_file():
        return frozenset()
    # The columns are interface, destination, gateway and others; addresses are hexadecimal, their last byte first.
    rows = [line.split() for line in routes.read_text(encoding="utf-8").splitlines()[1:]]
    found = [bytes.fromhex(row[2])[::-1] for row in rows if int(row[1], 16) == 0]
    return frozenset(socket.inet_ntoa(address) for address in found)


def serve(app: FastAPI, host: str, port: int, token: str, published: bool = False) -> None:
    """Serve until interrupted. `published` says that only this machine can reach the host, by a port that a container
    engine publishes. Raises UserError if others could reach it without a token, or the port is taken."""
    if not token and not published and not is_loopback(host):
        raise UserError(
            f"host = {host} can be reached from other machines, and without a token everyone there could run code. "
            "Set the variable SANDBOX_TOKEN, or leave the host at 127.0.0.1."
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
        except OSError as error:
            raise UserError(
                f"cannot listen on {host}:{port}: {error.strerror}. Set another --port, or SANDBOX_PORT."
            ) from None
        port = listening.getsockname()[1]
        # Before the address is printed: a client that connects at once then waits until the server is up.
        listening.listen()
        print(f"sandbox server on http://{f'[{host}]' if ':' in host else host}:{port}", flush=True)
        config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_keep_alive=KEEP_ALIVE_S)
        uvicorn.Server(config).run(sockets=[listening])


def _refusal(request: Request, token: str, forwarders: Collection[str]) -> Response | None:
    """The response that refuses a request, or None if it is allowed. `forwarders` are addresses that stand for this
    machine.

    Without a token, a web page in a browser on this machine must not get through. It reaches the loopback address too,
    but its requests have the header `Origin` or, after DNS rebinding, its own host name in `Host`.
    """
    if request.url.path == "/health":
        return None
    if token:
        given = request.headers.get("authorization", "").encode()
        # In constant time, so that the time of a refusal does not tell how much of a guess was right.
        if not hmac.compare_digest(given, f"Bearer {token}".encode()):
            needed = "A token is needed, as in `Authorization: Bearer TOKEN`; there is none, or a wrong one."
            return _error(401, needed, {"WWW-Authenticate": "Bearer"})
    elif "origin" in request.headers or not is_loopback(_host(request)) or not _is_from_here(request, forwarders):
        return _error(403, "Without a token only programs on the server's machine may use it. Set SANDBOX_TOKEN.")
    if request.method == "POST":
        # Checked before the body is read; without this header it could be endless.
        length = request.headers.get("content-length", "")
        if not length.isdigit():
            return _error(411, "The request must say how long its body is, by the header `Content-Length`.")
        if int(length) > MAX_BODY_BYTES:
            return _error(413, f"The body is larger than the {MAX_BODY_BYTES // 2**20} MiB that this server accepts.")
    return None


def _is_from_here(request: Request, forwarders: Collection[str]) -> bool:
    address = request.client.host if request.client else ""
    return is_loopback(address) or address in forwarders


def _host(request: Request) -> str:
    try:
        return urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    except ValueError:
        return ""


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": message}, status, headers)
