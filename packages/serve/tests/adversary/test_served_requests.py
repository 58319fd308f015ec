"""F16: web pages that ask a server without a key; and bodies that ask for more than it should spend, siblings of F5."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from packages.serve.tests.conftest import serving
from slimrl_serve.command import InferenceServer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tiny_dir: Path) -> Iterator[InferenceServer]:
    with serving(tiny_dir) as running:
        yield running


USER = [{"role": "user", "content": "a"}]
SCORED = {"messages": USER, "n": 128, "logprobs": True, "top_logprobs": 20}
DEEP_CALL = {"function": {"name": "f", "arguments": '{"a":' * 900 + "1" + "}" * 900}}


@pytest.mark.parametrize(
    ("path", "body", "complaint"),
    [
        ("/v1/completions", b'{"user":' + b"[" * 65 + b"]" * 65 + b"}", "64 deep"),
        ("/v1/completions", b'{"user":' + b"[" * 60_000 + b"]" * 60_000 + b"}", "64 deep"),
        ("/v1/completions", b'{"user":[' + b"{}," * 70_000 + b"1]}", "braces and brackets"),
        ("/v1/completions", b'{"prompt":[' + b"1," * 2**21 + b"1,1]}", "commas"),
        ("/v1/chat/completions", SCORED, "log-probabilities"),
        ("/v1/completions", {"prompt": [[5] * 500] * 200, "echo": True, "logprobs": 20}, "log-probabilities"),
        ("/v1/completions", {"prompt": "a", "model": "x" * 10**6}, "does not exist"),
        ("/inference/v1/generate", {"token_ids": [1], "request_id": "x" * 10**6}, "1024"),
        ("/update_weights", {"weight_dir": "/dev", "version": 1}, "no model.safetensors"),
        ("/update_weights", {"weight_dir": "a\0b", "version": 1}, "directory"),
        (
            "/v1/chat/completions",
            {
                "messages": [
                    *USER,
                    {"role": "assistant", "tool_calls": [DEEP_CALL]},
                ]
            },
            "context length",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_body_that_costs_too_much_is_400_in_few_words(
    server: InferenceServer, path: str, body: bytes | dict[str, Any], complaint: str
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = httpx.post(f"{server.address}{path}", content=content, headers={"Content-Type": "application/json"})
    assert reply.status_code in (400, 404)
    assert complaint in reply.text
    assert len(reply.content) < 1000
