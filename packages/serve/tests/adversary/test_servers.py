"""Clients that would stop a server: F5 (memory by headers), F6 (half requests), and their siblings.

A small application behind the same `HttpServer` and `Guard` as both servers stands for them.
"""

import asyncio
import re
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
from fastapi.responses import PlainTextResponse, Response, StreamingResponse
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send

from slimrl.io.http_access import Access, Refusal
from slimrl_serve.http import guard as http_guard
from slimrl_serve.http import server as http_server
from slimrl_serve.http.guard import MAX_HEAD_BYTES, Guard
from slimrl_serve.http.server import HttpServer, listen

pytestmark = pytest.mark.slow

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the size of the body; `/stream` never ends, and `/forever` never begins."""
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        return
    body = b""
    while scope["path"] != "/health":
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 2**16
            await asyncio.sleep(0)

    async def burst() -> AsyncIterator[bytes]:
        for _ in range(50):
            yield b"x" * 100

    if scope["path"] == "/forever":
        await receive()
        return
    response: Response = PlainTextResponse(str(len(body)))
    if scope["path"] in ("/stream", "/burst"):
        response = StreamingResponse(endless() if scope["path"] == "/stream" else burst())
    await response(scope, receive, send)


def respond(refusal: Refusal) -> Response:
    return PlainTextResponse(refusal.message, refusal.status, refusal.headers)


class Small:
    """The small application, being served."""

    def __init__(self) -> None:
        listening = listen("127.0.0.1", 0)
        self.port = listening.getsockname()[1]
        guard = Guard(app, Access("", "KEY"), 2**20, respond)
        self.http = HttpServer(guard, listening, grace_s=0)

    def connect(self, content: bytes = b"") -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        connection.sendall(content)
        return connection

    def ask(self, content: bytes) -> bytes:
        """All that the server answers until it closes the connection."""
        with self.connect() as connection:
            with suppress(OSError):  # it has refused the beginning already
                connection.sendall(content)
            return read(connection)

    def eventually_taken(self, num: int) -> None:
        deadline = time.monotonic() + 10
        while len(self.http._server.server_state.connections) != num:
            assert time.monotonic() < deadline, self.http._server.server_state.connections
            time.sleep(0.005)


def read(connection: socket.socket) -> bytes:
    reply = b""
    try:
        while part := connection.recv(2**16):
            reply += part
    except ConnectionResetError:
        pass
    return reply


def statuses(reply: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", reply)]


@contextmanager
def serving_small() -> Iterator[Small]:
    small = Small()
    small.http.start()
    try:
        yield small
    finally:
        small.http.stop()


@pytest.fixture(scope="module")
def small() -> Iterator[Small]:
    with serving_small() as running:
        yield running


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits for clients a moment only."""
    for name in ("HEAD_S", "BODY_S", "UNREAD_S", "KEEP_ALIVE_S", "LOOK_S"):
        monkeypatch.setattr(http_server, name, 0.05)


@pytest.mark.parametrize(
    "head",
    [
        b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 200_000,
        b"GET /health HTTP/1.1\r\nHost: x\r\nA: " + b"b" * 1_000_000,
        b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 5_000 + b"\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nA: " + b"b" * (MAX_HEAD_BYTES + 1) + b"\r\n\r\n",
        b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /health?" + b"a" * (MAX_HEAD_BYTES + 1) + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * 1_000_000,
    ],
    ids=["headers", "header", "whole headers", "whole header", "line", "query", "extension"],
)
def test_a_head_that_is_too_large_is_refused_while_it_arrives(small: Small, head: bytes) -> None:
    assert statuses(small.ask(head)) in ([], [400], [431], [411], [411, 400])  # a reset may overtake the answer


def test_a_long_head_that_fits_is_answered(small: Small) -> None:
    head = HEALTH[:-2] + b"Connection: close\r\nA: " + b"b" * (MAX_HEAD_BYTES - 1000) + b"\r\n\r\n"
    assert statuses(small.ask(head)) == [200]


@pytest.mark.parametrize(
    "content",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00" + bytes(500),
        b"GET /health HTTP/1.1\r\nHost localhost\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: local\0host\r\n\r\n",
        b"GET /health\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: +2\r\n\r\nab",
        b"POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\nabc\r\n",
        b"HEAD /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\nabc\r\n",
        b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nabPRI * H\xc3P/2\r\n\r\n",
    ],
)
def test_what_is_no_request_is_400_and_leaves_no_line(
    small: Small, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    *before, last = statuses(small.ask(content))
    assert last == 400 and before in ([], [200], [403])  # of a whole request before it
    assert not caplog.records


def test_an_upgrade_is_an_ordinary_request(small: Small, caplog: pytest.LogCaptureFixture) -> None:
    upgrade = b"Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\nSec-WebSocket-Version: 13\r\n"
    with small.connect(HEALTH[:-2] + upgrade + b"\r\n") as connection:
        assert statuses(connection.recv(2**16)) == [200]
    assert not caplog.records


def test_requests_that_are_sent_at_once_are_answered_in_turn(small: Small) -> None:
    assert statuses(small.ask(HEALTH * 300 + HEALTH[:-2] + b"Connection: close\r\n\r\n")) == [200] * 301


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(
    method=st.sampled_from([b"GET", b"POST", b"HEAD", b"\xff", b"", b"OPTIONS"]),
    target=st.one_of(st.just(b"/a"), st.binary(max_size=20)),
    headers=st.lists(
        st.one_of(
            st.binary(max_size=30),
            st.sampled_from([b"Content-Length: 5", b"Content-Length: x", b"Expect: 100-continue", b"Host: localhost"]),
            st.sampled_from([b"Transfer-Encoding: chunked", b"Connection: close", b"Host: [::1", b"Origin: null"]),
        ),
        max_size=5,
    ),
    body=st.binary(max_size=40),
)
def test_any_head_is_answered_below_500_or_the_connection_ends(
    small: Small, method: bytes, target: bytes, headers: list[bytes], body: bytes
) -> None:
    head = b"\r\n".join([method + b" " + target + b" HTTP/1.1", *headers, b"Host: localhost"])
    with small.connect(head + b"\r\n\r\n" + body) as connection:
        connection.shutdown(socket.SHUT_WR)
        assert all(status < 500 for status in statuses(read(connection)))
    with small.connect(HEALTH) as connection:
        assert statuses(connection.recv(2**16)) == [200]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"GET /h", []),
        (b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nabc", []),
        (HEALTH, [200]),
        (HEALTH + b"GET /h", [200]),
        # The answer comes before the body, for which the server does not wait any longer than for others.
        (b"POST /a HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 9\r\n\r\nabc", [403]),
    ],
    ids=["silent", "head", "body", "idle", "second head", "refused body"],
)
def test_a_client_that_keeps_the_server_waiting_is_left(
    small: Small, hasty: None, content: bytes, expected: list[int]
) -> None:
    with small.connect(content) as connection:
        assert statuses(read(connection)) == expected
    small.eventually_taken(0)


def test_a_body_byte_by_byte_has_the_same_time_as_any(small: Small, hasty: None) -> None:
    with small.connect(b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999\r\n\r\n") as connection:
        began = time.monotonic()
        with suppress(OSError):
            while time.monotonic() < began + 5:
                connection.sendall(b"a")
                time.sleep(0.005)
        assert time.monotonic() < began + 5


def test_a_client_that_does_not_read_its_stream_is_cut_off(small: Small, hasty: None) -> None:
    with small.connect(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n"):
        small.eventually_taken(1)
        small.eventually_taken(0)


def test_beyond_the_most_connections_new_ones_are_503_in_one_line_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 8)
    with serving_small() as small:
        with ExitStack() as stack:
            taken = [stack.enter_context(small.connect(content)) for content in [b"GET /f", HEALTH[:-2]] * 4]
            small.eventually_taken(8)
            assert [statuses(small.ask(HEALTH)) for _ in range(20)] == [[503]] * 20
            taken[1].sendall(b"\r\n")
            assert statuses(taken[1].recv(2**16)) == [200]
        small.eventually_taken(0)
        with small.connect(HEALTH) as connection:
            assert statuses(connection.recv(2**16)) == [200]
    assert [record.getMessage() for record in caplog.records] == [
        "all 8 connections are taken; new ones are answered with 503"
    ]


def test_clients_that_come_and_go_leave_nothing(small: Small, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(100):
        small.connect(b"GET").close()
        small.connect(b"GET /burst HTTP/1.1\r\nHost: localhost\r\n\r\n").close()
    small.eventually_taken(0)
    assert not caplog.records


def test_large_bodies_have_a_bound_together_and_small_ones_pass(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_guard, "MAX_BODIES_BYTES", 1000)
    monkeypatch.setattr(http_guard, "SMALL_BODY_BYTES", 100)

    def post(path: bytes, num: int) -> bytes:
        head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (path, num)
        return head + bytes(num)

    with small.connect(post(b"/forever", 900)):
        time.sleep(0.05)
        assert statuses(small.ask(post(b"/a", 200))) == [429]
        assert statuses(small.ask(post(b"/a", 99))) == [200]
    small.eventually_taken(0)
    assert statuses(small.ask(post(b"/a", 200))) == [200]
