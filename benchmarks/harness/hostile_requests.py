"""Random requests for a server to survive: bodies of the documented routes with wrong values, and damaged bytes.

A `Shot` is what a client sends and how it behaves meanwhile. Everything is a function of the random generator.
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shot:
    """The bytes of one or more requests. `is_whole` means that they are well-formed HTTP, which must be answered; a
    client that is not `patient` leaves before the answer."""

    content: bytes
    is_whole: bool
    num_pieces: int
    patient: bool


VALUES: Sequence[Callable[[random.Random], Any]] = (
    lambda rng: None,
    lambda rng: rng.choice([True, False]),
    lambda rng: rng.choice([0, 1, -1, 2, 3, 7, 127, 128, 129, 511, 512, 2**31, 2**31 - 1, 2**63, -(2**63), 10**30]),
    lambda rng: rng.choice([0.0, 0.5, 1.0, -0.5, 1e-300, 1e300, 99.9, 100.1]),
    lambda rng: rng.choice(["", "a", " ", "\n", "é", "\u0000", "\ud800", "\U0001f600", "tiny", "user", "tool", "../x"]),
    lambda rng: rng.choice(["a", "aé ", "<tool_call>", "{{x}}", "<|im_end|>", "\u0301"]) * rng.choice([3, 100, 20_000]),
    lambda rng: [rng.choice([0, 1, 5, 200, 10**6, -1]) for _ in range(rng.choice([0, 1, 5, 600]))],
    lambda rng: [rng.choice(["a", "b", "", "x" * 1025]) for _ in range(rng.choice([0, 1, 3, 129]))],
    lambda rng: nested(rng.choice([1, 10, 63, 64, 65, 900, 5000])),
    lambda rng: {"type": rng.choice(["text", "function", "json_object"])},
    lambda rng: {},
)


def nested(depth: int) -> Any:
    """A text that JSON parsers read as so many lists; `encode` puts it in unquoted."""
    return Raw("[" * depth + "]" * depth)


class Raw(str):
    """JSON that stands in a body as it is."""

    __slots__ = ()


def encode(body: Any) -> bytes:
    """The body as JSON, half surrogates as escapes."""
    raws: list[str] = []

    def plain(value: Any) -> Any:
        match value:
            case Raw():
                raws.append(str(value))
                return f"\x01{len(raws) - 1}\x01"
            case dict():
                return {key: plain(item) for key, item in value.items()}
            case list():
                return [plain(item) for item in value]
        return value

    text = json.dumps(plain(body))
    for number, raw in enumerate(raws):
        text = text.replace(f'"\\u0001{number}\\u0001"', raw)
    return text.encode()


class Gun:
    """Makes shots at a server. `bodies` are valid ones by route, `fields` the names that the server documents."""

    def __init__(self, rng: random.Random, address: str, bodies: Mapping[str, Sequence[Body]], gets: Sequence[str]):
        self._rng = rng
        self._host = address.removeprefix("http://")
        self._bodies = bodies
        self._gets = gets
        self._fields = sorted({key for several in bodies.values() for body in several for key in body})

    def shot(self) -> Shot:
        """The next one: a third is damaged."""
        rng = self._rng
        patient = rng.random() < 0.9
        content = b"".join(self._request() for _ in range(1 if rng.random() < 0.9 else rng.randint(2, 30)))
        is_whole = rng.random() < 0.65
        if not is_whole:
            for _ in range(rng.choice([1, 1, 2, 5, 30])):
                content = self._damage(content)
        return Shot(content, is_whole, rng.choice([1, 1, 1, 2, 5]), patient)

    def _request(self) -> bytes:
        rng = self._rng
        if rng.random() < 0.15:
            return self._head(rng.choice(["GET", "HEAD", "OPTIONS", "PUT"]), rng.choice(self._gets), b"")
        path = rng.choice(list(self._bodies))
        body: Any = json.loads(json.dumps(rng.choice(self._bodies[path])))
        for _ in range(rng.choice([0, 1, 1, 2, 4])):
            body = self._change(body)
        content = encode(body)
        return self._head("POST", path, content) + content

    def _head(self, method: str, path: str, content: bytes) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self._host}", "Content-Type: application/json"]
        if method == "POST":
            lines.append(f"Content-Length: {len(content)}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def _change(self, body: Any) -> Any:
        """The body with one value replaced, added, removed or repeated, at any depth."""
        rng = self._rng
        if not isinstance(body, (dict, list)) or rng.random() < 0.03:
            return rng.choice(VALUES)(rng)
        if isinstance(body, dict):
            key = (
                rng.choice(list(body))
                if body and rng.random() < 0.7
                else rng.choice([*self._fields, "x", "", "\ud800"])
            )
            if key in body and rng.random() < 0.1:
                return {other: value for other, value in body.items() if other != key}
            deeper = isinstance(body.get(key), (dict, list)) and rng.random() < 0.7
            return {**body, key: self._change(body[key]) if deeper else rng.choice(VALUES)(rng)}
        if not body or rng.random() < 0.2:
            return [*body, rng.choice(VALUES)(rng)]
        if rng.random() < 0.1 and len(body) < 1000:
            return body * rng.choice([2, 50, 1000])
        at = rng.randrange(len(body))
        return [*body[:at], self._change(body[at]), *body[at + 1 :]]

    def _damage(self, content: bytes) -> bytes:
        """The bytes with one thing changed; half of the time in the head, where more depends on each."""
        rng = self._rng
        end = max(1, content.find(b"\r\n\r\n") if rng.random() < 0.5 else len(content))
        at = rng.randrange(end)
        piece = content[at : at + rng.choice([1, 2, 10, 1000])]
        lines = content.find(b"\r\n", 0) + 2
        match rng.randrange(8):
            case 0:
                return content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :]
            case 1:
                return content[:at] + rng.choice(PIECES) + content[at:]
            case 2:
                return content[:at] + content[at + len(piece) :]
            case 3:
                return content[:at] + piece * rng.choice([2, 3, 1000]) + content[at:]
            case 4:
                return content[:at]
            case 5 | 6:
                return content[:lines] + rng.choice(HEADERS) + b"\r\n" + content[lines:]
        return rng.choice(STARTS)


PIECES = (b"\0", b"\r\n", b"\n", b"\r\n\r\n", b" ", b":", b"\xff", b"%00", b"\x16\x03\x01", b"0\r\n\r\n", b"A" * 70_000)
HEADERS = (
    b"Content-Length: 0",
    b"Content-Length: 99999999999999999999999999",
    b"Content-Length: -1",
    b"Content-Length: 5, 5",
    b"Content-Length: +5",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: identity",
    b"Expect: 100-continue",
    b"Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==",
    b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__",
    b"Connection: close",
    b"Host: evil.example",
    b"Host: [::1",
    b"Origin: http://evil.example",
    b"Authorization: Bearer \xff\xfe",
    b"Authorization: Basic eDp5",
    b"Content-Type: text/plain",
    b"Content-Type: application/json; charset=utf-16",
    b"Content-Encoding: gzip",
    b"no colon",
    b" folded: yes",
    b"X: " + b"y" * 40_000,
    b"".join(b"A%d: b\r\n" % number for number in range(3000)) + b"Z: z",
    b"X-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Host: evil.example",
    b"Range: bytes=0-1,5-",
    b"Cookie: " + b"a=b; " * 500,
)
STARTS = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    b"GET /health\r\n",
    b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
    b"GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /%ff%fe%00/../../x?%zz=%00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1;" + b"x" * 50_000,
    b"POST /execute HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 10_000,
    b"\r\n" * 10_000,
    b"GET /health HTTP/1.0\r\n\r\n",
    b"GET /" + b"a" * 100_000,
    b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 10_000,
)


def inference_bodies(places: Sequence[Path]) -> dict[str, Sequence[Body]]:
    """Valid bodies of the inference server's routes; `places` are directories to read weights and adapters from."""
    user = [{"role": "user", "content": "a b"}]
    tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
    called = {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": '{"a": 1}'}}]}
    result = {"role": "tool", "tool_call_id": "1", "content": "2"}
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
    sampling = {"max_tokens": 3, "temperature": 1.0, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 1, "n": 2}
    stops = {"max_tokens": 8, "stop": ["a", "bc"], "stop_token_ids": [5], "ignore_eos": True}
    stream = {"stream": True, "stream_options": {"include_usage": True}}
    chat = [
        {"messages": user, **sampling},
        {"messages": [*user, called, result], "tools": [tool], "tool_choice": "auto", "max_tokens": 3},
        {"messages": parts, "logprobs": True, "top_logprobs": 3, **stops, **stream},
        {"messages": user, "chat_template_kwargs": {"a": 1}, "add_generation_prompt": True, "max_tokens": 1},
    ]
    completions = [
        {"prompt": "a b", **sampling, "logprobs": 2},
        {"prompt": [[1, 2], [3]], **stops, "return_token_ids": True},
        {"prompt": ["a", "b"], "max_tokens": 4, **stream},
        {"prompt": [1, 2, 3], "max_tokens": 2, "echo": True, "logprobs": 2, "skip_special_tokens": False},
    ]
    return {
        "/v1/chat/completions": chat,
        "/v1/chat/completions/tokens": [{"tokens": [1, 2], **body} for body in chat],
        "/v1/completions": completions,
        "/tokenize": [{"prompt": "a b"}, {"messages": user, "add_special_tokens": True}],
        "/inference/v1/generate": [{"token_ids": [1, 2], "sampling_params": {**stops, "logprobs": 1, "seed": 3}}],
        "/update_weights": [{"weight_dir": str(place), "version": 1} for place in places],
    }


def sandbox_bodies() -> dict[str, Sequence[Body]]:
    """Valid bodies of the sandbox's server; programs are short, as its own tests are about what they may do."""
    codes = ["print(1)", "1/0", "import sys; sys.exit(3)", "print('x' * 10**6)", "def f(:", "print('\\ud800')"]
    execute = [{"code": code, "session_id": f"s{number % 3}", "timeout_s": 0.5} for number, code in enumerate(codes)]
    return {"/execute": [*execute, {"code": "while True: pass", "timeout_s": 0.05}]}
