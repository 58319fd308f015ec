"""The server answers hostile and mistaken clients with an error, and goes on to serve others."""

import concurrent.futures
import json
import random
import socket
import time
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from packages.serve.tests.clients.serving import Reference, Server, wait_for

pytestmark = pytest.mark.slow

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
TOOL = {"type": "function", "function": {"name": "f", "description": "", "parameters": {}}}


def post_raw(server: Server, path: str, body: bytes | str, **headers: str) -> httpx.Response:
    headers = {"Content-Type": "application/json", **headers}
    return httpx.post(server.url + path, content=body, headers=headers, timeout=60, verify=False)


def post(server: Server, path: str, body: Any) -> httpx.Response:
    return post_raw(server, path, json.dumps(body))


@pytest.fixture(autouse=True)
def still_serves(server: Server, reference: Reference) -> Any:
    """Check after every test that nothing runs or waits, and that a greedy answer is the same as before."""
    yield
    wait_for(server, "num_requests_running", 0)
    wait_for(server, "num_requests_waiting", 0)
    prompt = reference.encode("The quick brown")
    body = {"prompt": prompt, "max_tokens": 8, "temperature": 0, "return_token_ids": True}
    assert post(server, COMPLETIONS, body).json()["choices"][0]["token_ids"] == reference.greedy(prompt, 8)[0]


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
def test_an_odd_chat_is_answered(server: Server, change: dict[str, Any]) -> None:
    response = post(server, CHAT, {**HELLO, **change})
    assert response.status_code == 200, response.text


def test_long_stop_strings_do_not_hold_up_the_others(server: Server) -> None:
    stop = ["t" * 1000 + str(index) for index in range(128)]
    slow = {"prompt": "t" * 100, "max_tokens": 100, "stop": stop, "stream": True, "ignore_eos": True, "n": 4}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        streams = [pool.submit(post, server, COMPLETIONS, slow) for _ in range(2)]
        while any(not stream.done() for stream in streams):
            began = time.monotonic()
            assert httpx.get(f"{server.url}/health", timeout=10).status_code == 200
            assert time.monotonic() - began < 5.0
            time.sleep(0.05)
        assert [stream.result().status_code for stream in streams] == [200, 200]


def connection(server: Server) -> socket.socket:
    parts = urlsplit(server.url)
    assert parts.hostname and parts.port
    return socket.create_connection((parts.hostname, parts.port), timeout=30)


def request_bytes(path: str, body: Any) -> bytes:
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


def test_a_client_that_never_reads_does_not_hold_up_the_others(server: Server) -> None:
    clients = [connection(server) for _ in range(4)]
    for client in clients:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(
            request_bytes(CHAT, {**HELLO, "max_tokens": 400, "stream": True, "ignore_eos": True, "logprobs": True,
                                 "top_logprobs": 20})
        )  # fmt: skip
    try:
        for _ in range(4):
            assert post(server, CHAT, HELLO).status_code == 200
    finally:
        for client in clients:
            client.close()


def test_requests_and_departures_at_random_leave_nothing_behind(server: Server, reference: Reference) -> None:
    prompts = [reference.encode(text) for text in ("The", "user system", "What is the capital of France?", "fox " * 40)]
    expected = [reference.greedy(prompt, 40)[0] for prompt in prompts]

    def one(seed: int) -> None:
        rng = random.Random(seed)
        which, stream, length = rng.randrange(len(prompts)), rng.random() < 0.5, rng.randrange(1, 41)
        body = {"prompt": prompts[which], "max_tokens": length, "temperature": 0, "return_token_ids": True}
        if rng.random() < 0.5:
            with connection(server) as client:
                client.sendall(request_bytes(COMPLETIONS, {**body, "stream": stream, "max_tokens": 400, "n": 3}))
                time.sleep(rng.random() * 0.3)
            return
        response = post(server, COMPLETIONS, {**body, "stream": stream})
        assert response.status_code == 200, response.text
        lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: {")]
        replies = [json.loads(line) for line in lines] if stream else [response.json()]
        assert [token for reply in replies for token in reply["choices"][0]["token_ids"]] == expected[which][:length]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(one, range(60)))
