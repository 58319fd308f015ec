"""The server answers hostile and mistaken clients with an error, and goes on to serve others."""

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from packages.serve.tests.conftest import Reference, eventually, idle
from slimrl_serve.command import InferenceServer

pytestmark = pytest.mark.slow

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
TOOL = {"type": "function", "function": {"name": "f", "description": "", "parameters": {}}}


@pytest.fixture(autouse=True)
def still_serves(server: InferenceServer, http: httpx.Client, reference: Reference) -> Iterator[None]:
    """Check after every test that nothing runs or waits, and that a greedy answer is the same as before."""
    yield
    eventually(lambda: idle(server))
    prompt = reference.encode("The quick brown")
    body = {"prompt": prompt, "max_tokens": 8, "temperature": 0, "return_token_ids": True}
    choice = http.post(COMPLETIONS, json=body).json()["choices"][0]
    assert choice["token_ids"] == reference.greedy(prompt, 8)[0]


@pytest.mark.parametrize(
    "change",
    [
        {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]}]},
        {"messages": [{"role": "tool", "content": "42", "tool_call_id": "1"}]},
        {"messages": [{"role": "user", "content": "\x00\x01<|im_end|>\u202e\U0001f600\ufffd\ufffe"}]},
        {"messages": [{"role": "user", "content": []}]},
        {"messages": [{"role": "assistant", "content": "so", "tool_calls": []}], "tools": []},
        {"messages": [{"role": "user", "content": "hi"}], "tools": [TOOL], "stream": True},
        {"stop": [f"stop {index}" for index in range(128)], "stream": True},
        {"unknown": None, "user": "me", "store": True, "metadata": {}},
        {"temperature": 1e-300},
        {"temperature": 100, "top_p": 1e-300, "logprobs": True, "top_logprobs": 2},
        {"min_p": 0.999999999999, "top_k": 2**31 - 1},
        {"seed": -(2**63)},
        {"logit_bias": {}, "frequency_penalty": 0, "presence_penalty": 0.0, "response_format": {"type": "text"}},
        {"chat_template_kwargs": {"enable_thinking": False, "nan": 1}},
    ],
    ids=str,
)
def test_an_odd_chat_is_answered(http: httpx.Client, change: dict[str, Any]) -> None:
    response = http.post(CHAT, json={**HELLO, **change})
    assert response.status_code == 200, response.text


def test_long_stop_strings_do_not_hold_up_the_others(http: httpx.Client) -> None:
    stop = ["t" * 1000 + str(index) for index in range(128)]
    slow = {"prompt": "t" * 100, "max_tokens": 100, "stop": stop, "stream": True, "ignore_eos": True, "n": 4}
    with ThreadPoolExecutor() as pool:
        streams = [pool.submit(http.post, COMPLETIONS, json=slow) for _ in range(2)]
        while any(not stream.done() for stream in streams):
            assert http.get("/health", timeout=5).status_code == 200
            time.sleep(0.05)
        assert [stream.result().status_code for stream in streams] == [200, 200]


def send(server: InferenceServer, path: str, body: Any) -> socket.socket:
    """Send a request, and return the connection, which nobody reads."""
    parts = urlsplit(server.address)
    assert parts.hostname and parts.port
    client, content = socket.socket(), json.dumps(body).encode()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect((parts.hostname, parts.port))
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    client.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    return client


def test_a_client_that_never_reads_does_not_hold_up_the_others(server: InferenceServer, http: httpx.Client) -> None:
    long = {**HELLO, "max_tokens": 400, "stream": True, "ignore_eos": True, "logprobs": True, "top_logprobs": 20}
    clients = [send(server, CHAT, long) for _ in range(4)]
    try:
        for _ in range(4):
            assert http.post(CHAT, json=HELLO).status_code == 200
    finally:
        for client in clients:
            client.close()
