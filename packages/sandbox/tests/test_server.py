"""The server over loopback, with the client and without it: what is answered, what is refused, and in which words."""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from packages.sandbox.tests.conftest import TOOLS
from slimrl.errors import UserError
from slimrl_sandbox.__main__ import main
from slimrl_sandbox.base import Call, Execution, Limits, Sandbox
from slimrl_sandbox.client import HttpSandbox
from slimrl_sandbox.local import BubblewrapSandbox
from slimrl_sandbox.server import MAX_BODY_BYTES, HttpServer, gateways, listen, make_app
from tests.io.http_contract import CASES, KEY, Client
from tests.io.replying import Answer

TOKEN = "a-token"
OWN = {"Authorization": f"Bearer {TOKEN}"}
NOWHERE = HttpSandbox("http://127.0.0.1:9")


@contextmanager
def serving(token: str, sandbox: Sandbox | None = None) -> Iterator[str]:
    sandbox = sandbox or BubblewrapSandbox(TOOLS, Limits(wall_s=5.0))
    server = HttpServer(make_app(sandbox, token), listen("127.0.0.1", 0), grace_s=1)
    server.start()
    try:
        yield server.address
    finally:
        server.stop()


@pytest.fixture(scope="module")
def server(isolated: None) -> Iterator[str]:
    with serving(TOKEN) as address:
        yield address


def test_code_runs(server: str) -> None:
    body = {"session_id": "a", "code": "print(shout('a'))\n1/0", "timeout_s": 5}
    reply = httpx.post(f"{server}/execute", json=body, headers=OWN).json()
    assert set(reply) == {"stdout", "stderr", "error", "duration_s", "truncated", "calls"}
    assert reply["calls"] == [{"tool": "shout", "argument": "a", "error": ""}]
    assert reply["stdout"] == "A\n" and "ZeroDivisionError" in reply["error"]
    assert httpx.get(f"{server}/health").json() == {"status": "ok"}  # open to all


@pytest.mark.slow
def test_the_client_is_a_sandbox_for_many_at_once(server: str) -> None:
    async def scenario() -> tuple[Execution, Execution, list[Execution]]:
        async with HttpSandbox(server, TOKEN) as sandbox:
            first = await sandbox.run("print(shout('a'))")
            late = await sandbox.run("while True: pass", timeout_s=0.3)
            return first, late, await asyncio.gather(*(sandbox.run(f"print({i})") for i in range(20)))

    first, late, many = asyncio.run(scenario())
    assert (first.stdout, first.error, first.calls) == ("A\n", "", (Call("shout", "a"),))
    assert "timeout_s = 0.3" in late.error
    assert [execution.stdout for execution in many] == [f"{i}\n" for i in range(20)]


@pytest.mark.parametrize("path", ["/execute", "/openapi.json"])
@pytest.mark.parametrize("header", ["", "Bearer wrong", TOKEN, f"Basic {TOKEN}"])
def test_without_the_token_nothing_else_is_answered(server: str, path: str, header: str) -> None:
    headers = {"Authorization": header} if header else {}
    reply = httpx.request("POST" if path == "/execute" else "GET", server + path, headers=headers)
    assert reply.status_code == 401 and "SANDBOX_TOKEN" in reply.json()["error"]


@pytest.mark.parametrize(
    ("peer", "headers", "status"),
    [
        ("127.0.0.1", {}, 200),
        ("172.18.0.1", {}, 200),  # the engine, which forwards what came to the loopback address of the host
        ("172.18.0.7", {}, 403),  # another container
        ("192.168.1.20", {}, 403),  # another machine, to which an old Docker routes what it should not
        ("172.18.0.1", {"Origin": "https://example.com"}, 403),  # a web page
        ("172.18.0.1", {"Host": "example.com"}, 403),  # a web page after DNS rebinding
        ("127.0.0.1", {"Host": "[oops"}, 403),
    ],
)
def test_without_a_token_only_this_machine_is_answered(peer: str, headers: dict[str, str], status: int) -> None:
    async def ask() -> int:
        transport = httpx.ASGITransport(make_app(NOWHERE, "", forwarders={"172.18.0.1"}), client=(peer, 4000))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8080") as http:
            return (await http.get("/openapi.json", headers=headers)).status_code

    assert asyncio.run(ask()) == status


def test_the_gateway_is_read_from_the_routes(tmp_path: Path) -> None:
    routes = tmp_path / "route"
    header = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n"
    own = "eth0\t000012AC\t00000000\t0001\t0\t0\t0\t0000FFFF\n"
    routes.write_text(f"{header}eth0\t00000000\t010012AC\t0003\t0\t0\t0\t00000000\n{own}")
    assert gateways(routes) == {"172.18.0.1"}
    routes.write_text(header + own)
    assert gateways(routes) == frozenset()


@pytest.mark.parametrize(
    ("body", "status", "complaint"),
    [
        ({}, 422, "code"),
        ({"code": "1", "timeout_s": -1}, 422, "timeout_s"),
        ({"code": "1", "timeout_s": "5"}, 422, "timeout_s"),
        ({"code": "1", "session_id": "x" * 201}, 422, "session_id"),
        ({"code": "1", "timeout": 5}, 422, "timeout"),
        ({"code": "x" * MAX_BODY_BYTES}, 413, "1 MiB"),
        (b"nonsense", 422, "body"),
        (b"[" * 10_000, 400, "body"),
    ],
)
def test_a_body_that_is_wrong_is_refused(server: str, body: object, status: int, complaint: str) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = httpx.post(f"{server}/execute", content=content, headers={**OWN, "Content-Type": "application/json"})
    assert reply.status_code == status and complaint in reply.text


def test_an_unknown_path_is_refused_and_a_body_needs_its_length(server: str) -> None:
    assert httpx.get(f"{server}/nowhere", headers=OWN).status_code == 404
    assert httpx.get(f"{server}/execute", headers=OWN).status_code == 405
    assert httpx.post(f"{server}/execute", content=iter([b"x" * 1000] * 100), headers=OWN).status_code == 411


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--host", "0.0.0.0"], "SANDBOX_TOKEN"),
        *((["--tools", tools], r"Give package\.module:name") for tools in ("nowhere:f", "os:nothing", "os")),
    ],
)
def test_a_server_that_cannot_start_says_why(arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SANDBOX_TOKEN", raising=False)
    with pytest.raises(UserError, match=said):
        main(arguments)


def example_tools(data_dir: os.PathLike[str]) -> dict[str, object]:
    """What `--tools` names in the test below."""
    return {"where": lambda _: str(data_dir)}


@pytest.mark.slow
def test_the_command_serves_until_it_is_stopped(isolated: None, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "slimrl_sandbox", "--port", "0", "--tools", f"{__name__}:example_tools"]
    environment = {**os.environ, "SANDBOX_TOKEN": TOKEN, "DATA_DIR": "/some/data", "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout
            address = re.search(r"http://\S+", process.stdout.readline())
            assert address
            reply = httpx.post(f"{address[0]}/execute", json={"code": "print(where(''))"}, headers=OWN, timeout=30)
            assert reply.json()["stdout"] == "/some/data\n"
            process.terminate()
            started = time.perf_counter()
            process.wait(10)
            assert time.perf_counter() - started < 5
        finally:
            process.kill()  # if it was not stopped: `with` would wait for it for ever
    assert os.listdir(tmp_path) == []


def post(address: str, code: str) -> socket.socket:
    """A client that has asked for an execution, and reads no reply."""
    body = json.dumps({"code": code}).encode()
    head = f"POST /execute HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    host, port = address.removeprefix("http://").split(":")
    client = socket.create_connection((host, int(port)))
    client.sendall(f"{head}\r\n\r\n".encode() + body)
    return client


def test_a_full_queue_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slimrl_sandbox.server.MAX_QUEUE", 0)
    with serving("", NOWHERE) as address:
        full = httpx.post(f"{address}/execute", json={"code": ""})
    assert full.status_code == 503 and full.headers["Retry-After"] == "1"
    assert "queue is full: 0 requests" in full.json()["error"]


@pytest.mark.slow
def test_programs_of_clients_that_have_left_are_ended(isolated: None) -> None:
    with serving("", BubblewrapSandbox({}, Limits(wall_s=5), num_at_once=2)) as address:
        for _ in range(20):
            post(address, "while True: pass").close()
        started = time.perf_counter()
        assert httpx.post(f"{address}/execute", json={"code": "print(1)"}, timeout=60).json()["stdout"] == "1\n"
        assert time.perf_counter() - started < 4


def run(root: str, limit_s: float) -> Execution:
    async def work() -> Execution:
        async with HttpSandbox(root, KEY) as sandbox:
            return await sandbox.run("print(1)")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("slimrl_sandbox.client._BUSY_S", limit_s)
        return asyncio.run(work())


RAN = {"stdout": "", "stderr": "", "error": "", "duration_s": 0.1, "truncated": False, "calls": []}
CLIENT = Client("sandbox", run, lambda _: Answer(200, RAN), repeats=False, takes_any_json=True)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_client_keeps_the_contract_of_all_clients(case: Callable[[Client], None]) -> None:
    case(CLIENT)


@pytest.mark.parametrize(
    ("place", "said"),
    [("http://127.0.0.1:9", "python -m slimrl_sandbox"), ("", "Authorization: Bearer KEY.*SANDBOX_TOKEN")],
)
def test_a_server_that_does_not_answer_is_told_with_what_to_do(server: str, place: str, said: str) -> None:
    async def ask() -> None:
        async with HttpSandbox(place or server) as sandbox:
            await sandbox.run("print(1)")

    with pytest.raises(UserError, match=said):
        asyncio.run(ask())
