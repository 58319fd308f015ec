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
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from packages.sandbox.tests.attempts.audit import Client
from packages.sandbox.tests.conftest import TOOLS
from slimrl.errors import UserError
from slimrl_sandbox.__main__ import main
from slimrl_sandbox.base import Call, Execution, Limits, Sandbox
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
def serving(token: str, sandbox: Sandbox | None = None, max_queue: int = 100) -> Iterator[Serving]:
    sandbox = sandbox or BubblewrapSandbox(TOOLS, Limits(wall_s=5.0))
    server = HttpServer(make_app(sandbox, TOOLS, token, max_queue=max_queue), listen("127.0.0.1", 0), grace_s=1)
    server.start()
    try:
        yield Serving(server.address, token)
    finally:
        server.stop()


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


class Waiting:
    """A sandbox whose executions end when they are cancelled; it counts them."""

    def __init__(self) -> None:
        self.num_running = 0
        self.num_cancelled = 0

    async def run(self, code: str, session_id: str = "", timeout_s: float = 0.0) -> Execution:
        self.num_running += 1
        try:
            await asyncio.sleep(30 if code == "wait" else 0)
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        finally:
            self.num_running -= 1
        return Execution("", "", "", 0.0, truncated=False)

    async def end_session(self, session_id: str) -> None: ...


def post(address: str, code: str) -> socket.socket:
    """A client that has asked for an execution, and reads no reply."""
    body = json.dumps({"code": code}).encode()
    head = f"POST /execute HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    host, port = address.removeprefix("http://").split(":")
    client = socket.create_connection((host, int(port)))
    client.sendall(f"{head}\r\n\r\n".encode() + body)
    return client


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.slow
def test_a_full_queue_refuses_and_a_client_that_leaves_frees_its_place() -> None:
    async def ask(address: str, leave: Callable[[], None]) -> Execution:
        async with HttpSandbox(address) as client:
            asyncio.get_running_loop().call_later(0.1, leave)
            return await client.run("")

    sandbox = Waiting()
    with serving("", sandbox, max_queue=5) as server:
        clients = [post(server.address, "wait") for _ in range(5)]
        until(lambda: sandbox.num_running == 5)
        full = httpx.post(f"{server.address}/execute", json={"code": ""})
        assert full.status_code == 503 and full.headers["Retry-After"] == "1"
        assert "queue is full: 5 requests" in full.json()["error"]
        assert asyncio.run(ask(server.address, clients.pop().close)).error == ""  # slimrl's client waits
        for client in clients:
            client.close()
        until(lambda: sandbox.num_cancelled == 5)
    with pytest.raises(UserError, match="limit max_queue = 0 is none"):
        make_app(sandbox, {}, "", max_queue=0)


@pytest.mark.slow
def test_programs_of_clients_that_have_left_are_ended(isolated: None) -> None:
    with serving("", BubblewrapSandbox({}, Limits(wall_s=5), num_at_once=2)) as server:
        for _ in range(20):
            post(server.address, "while True: pass").close()
        started = time.perf_counter()
        reply = httpx.post(f"{server.address}/execute", json={"code": "print(1)"}, timeout=60)
        assert reply.json()["stdout"] == "1\n"
        assert time.perf_counter() - started < 4


def test_connections_are_given_up_by_clients_first() -> None:
    kept_s = httpx.Limits().keepalive_expiry
    assert kept_s is not None and kept_s < KEEP_ALIVE_S / 2
