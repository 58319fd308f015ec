"""The server over loopback, with the client and without it: what is answered, what is refused, and in which words."""

import asyncio
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from packages.sandbox.tests.attempts.audit import Client
from packages.sandbox.tests.conftest import TOOLS
from slimrl.errors import UserError
from slimrl_sandbox.__main__ import main
from slimrl_sandbox.base import Call, Execution, Limits
from slimrl_sandbox.client import HttpSandbox
from slimrl_sandbox.local import BubblewrapSandbox
from slimrl_sandbox.server import MAX_BODY_BYTES, make_app, serve
from slimrl_serve.http.connection import KEEP_ALIVE_S
from slimrl_serve.http.server import HttpServer, listen

TOKEN = "a-token"


@dataclass(frozen=True)
class Serving:
    address: str
    token: str

    def http(self, **headers: str) -> httpx.Client:
        return httpx.Client(base_url=self.address, headers=headers, timeout=30, verify=False)

    def own(self) -> httpx.Client:
        return self.http(**({"Authorization": f"Bearer {self.token}"} if self.token else {}))


@contextmanager
def serving(token: str) -> Iterator[Serving]:
    sandbox = BubblewrapSandbox(TOOLS, Limits(wall_s=5.0))
    server = HttpServer(make_app(sandbox, TOOLS, token), listen("127.0.0.1", 0), grace_s=1)
    server.start()
    try:
        yield Serving(server.address, token)
    finally:
        server.stop()
        sandbox.close()


@pytest.fixture(scope="module", params=[TOKEN, ""], ids=["token", "no token"])
def server(request: pytest.FixtureRequest, isolated: None) -> Iterator[Serving]:
    with serving(request.param) as running:
        yield running


@pytest.fixture(scope="module")
def locked(isolated: None) -> Iterator[Serving]:
    with serving(TOKEN) as running:
        yield running


def test_health_is_open_to_all(server: Serving) -> None:
    with server.http() as http:
        assert http.get("/health").json()["status"] == "ok"


def test_code_runs(server: Serving) -> None:
    with server.own() as http:
        reply = http.post("/execute", json={"session_id": "a", "code": "print(shout('a'))\n1/0", "timeout_s": 5}).json()
    assert set(reply) == {"stdout", "stderr", "error", "duration_s", "truncated", "calls"}
    assert reply["calls"] == [{"tool": "shout", "argument": "a", "error": ""}]
    assert reply["stdout"] == "A\n" and "ZeroDivisionError" in reply["error"]


@pytest.mark.slow
def test_the_client_is_a_sandbox(server: Serving) -> None:
    async def scenario() -> list[Execution]:
        async with HttpSandbox(server.address, server.token) as sandbox:
            return [
                await sandbox.run("open('a', 'w').write('x')\nprint(shout('a'))", "client"),
                await sandbox.run("print(open('a').read())", "client"),
                await sandbox.run("open('a')"),
                await sandbox.run("while True: pass", timeout_s=0.3),
            ]

    first, same, other, late = asyncio.run(scenario())
    assert (first.stdout, first.error, same.stdout) == ("A\n", "", "x\n")
    assert first.calls == (Call("shout", "a"),)
    assert "FileNotFoundError" in other.error
    assert "timeout_s = 0.3" in late.error


def test_tools_can_be_called_one_by_one(server: Serving) -> None:
    async def scenario() -> None:
        async with Client(server.address, server.token) as sandbox:
            assert await sandbox.tools() == ["shout", "broken"]
            assert await sandbox.call("shout", "a") == {"result": "A"}
            assert await sandbox.call("broken", "b") == {"error": "'there is no b'"}
            with pytest.raises(UserError, match="Did you mean `shout`"):
                await sandbox.call("shoot", "a")

    asyncio.run(scenario())


@pytest.mark.slow
def test_fifty_clients_at_once_are_all_answered(locked: Serving) -> None:
    async def scenario() -> list[Execution]:
        async with HttpSandbox(locked.address, locked.token) as sandbox:
            return await asyncio.gather(*(sandbox.run(f"print({i})") for i in range(50)))

    assert [execution.stdout for execution in asyncio.run(scenario())] == [f"{i}\n" for i in range(50)]


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/execute"), ("GET", "/tools"), ("POST", "/tools/shout"), ("GET", "/openapi.json")]
)
@pytest.mark.parametrize("header", ["", "Bearer", "Bearer wrong", TOKEN, f"bearer {TOKEN}x", f"Basic {TOKEN}"])
def test_without_the_token_nothing_else_is_answered(locked: Serving, method: str, path: str, header: str) -> None:
    with locked.http(**({"Authorization": header} if header else {})) as http:
        reply = http.request(method, path, json={"code": "print(1)", "argument": "a"})
    assert reply.status_code == 401
    assert "SANDBOX_TOKEN" in reply.json()["error"]


def test_a_client_without_the_token_is_told(locked: Serving) -> None:
    async def scenario() -> None:
        async with HttpSandbox(locked.address) as sandbox:
            await sandbox.run("print(1)")

    with pytest.raises(UserError, match="Authorization: Bearer KEY"):
        asyncio.run(scenario())


@pytest.mark.parametrize("headers", [{"Origin": "http://evil.example"}, {"Host": "evil.example"}, {"Host": "[oops"}])
def test_without_a_token_no_web_page_gets_through(isolated: None, headers: dict[str, str]) -> None:
    with serving("") as server, server.http(**headers) as http:
        reply = http.post("/execute", json={"code": "print(1)"})
    assert reply.status_code in (400, 403)
    assert "print" not in reply.text


@pytest.mark.parametrize(
    ("body", "status", "complaint"),
    [
        ({}, 422, "code"),
        ({"code": 3}, 422, "code"),
        ({"code": "1", "timeout_s": -1}, 422, "timeout_s"),
        ({"code": "1", "timeout_s": "5"}, 422, "timeout_s"),
        ({"code": "1", "session_id": "x" * 201}, 422, "session_id"),
        ({"code": "1", "timeout": 5}, 422, "timeout"),
        ({"code": "x" * MAX_BODY_BYTES}, 413, "1 MiB"),
    ],
)
def test_a_body_that_is_wrong_is_refused(server: Serving, body: dict[str, object], status: int, complaint: str) -> None:
    with server.own() as http:
        reply = http.post("/execute", json=body)
    assert reply.status_code == status
    assert complaint in reply.json()["error"]


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\xff", b"[" * 10_000, b"null"])
def test_a_body_that_is_no_json_is_refused(server: Serving, content: bytes) -> None:
    with server.own() as http:
        reply = http.post("/execute", content=content, headers={"Content-Type": "application/json"})
    assert 400 <= reply.status_code < 500
    assert reply.json()["error"]


def test_a_body_of_unknown_length_is_refused(server: Serving) -> None:
    with server.own() as http:
        reply = http.post("/execute", content=iter([b"x" * 1000] * 10_000))
    assert reply.status_code == 411


def test_an_unknown_path_names_the_known_ones(server: Serving) -> None:
    with server.own() as http:
        assert "/execute" in http.get("/nowhere").json()["error"]
        assert http.get("/execute").status_code == 405


def test_a_server_that_is_not_there_is_told_with_how_to_start_it() -> None:
    async def scenario() -> None:
        async with HttpSandbox("http://127.0.0.1:9") as sandbox:
            await sandbox.run("print(1)")

    with pytest.raises(UserError, match=r"python -m slimrl_sandbox"):
        asyncio.run(scenario())


def test_others_are_not_served_without_a_token() -> None:
    with pytest.raises(UserError, match="SANDBOX_TOKEN"):
        serve(make_app(HttpSandbox("http://127.0.0.1:9"), {}, ""), "0.0.0.0", 0, "")


def test_a_port_that_is_taken_is_told() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        pytest.raises(UserError, match="another --host or --port"),
    ):
        serve(make_app(HttpSandbox("http://127.0.0.1:9"), {}, ""), "127.0.0.1", listening.getsockname()[1], "")


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
            with httpx.Client(base_url=address[0], headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30) as http:
                assert http.post("/execute", json={"code": "print(where(''))"}).json()["stdout"] == "/some/data\n"
            process.terminate()
            started = time.perf_counter()
            process.wait(10)
            assert time.perf_counter() - started < 5
        finally:
            process.kill()  # if it was not stopped: `with` would wait for it for ever
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("tools", ["nowhere:f", "os:nothing", "os"])
def test_tools_that_are_not_there_are_told(tools: str) -> None:
    with pytest.raises(UserError, match=r"Give package\.module:name"):
        main(["--tools", tools])


def test_connections_are_given_up_by_clients_first() -> None:
    kept_s = httpx.Limits().keepalive_expiry
    assert kept_s is not None and kept_s < KEEP_ALIVE_S / 2
