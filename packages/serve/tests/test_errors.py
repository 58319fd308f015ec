"""Clients' mistakes are answered in OpenAI's format, with the right status, never with a 500."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from packages.serve.tests.conftest import serving
from slimrl.config.reading.load import load
from slimrl.config.serve import ServeConfig
from slimrl.errors import UserError
from slimrl_serve.command import InferenceServer
from slimrl_serve.guard import MAX_BODY_BYTES
from slimrl_serve.http.server import listen

USER = [{"role": "user", "content": "hi"}]
IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
MANY_SCORES = {"n": 128, "logprobs": True, "top_logprobs": 20}
DEEP = {"name": "f", "arguments": '{"a":' * 900 + "1" + "}" * 900}
DEEP_CALL = {"role": "assistant", "tool_calls": [{"function": DEEP}]}
JSON = {"Content-Type": "application/json"}


def refused(reply: httpx.Response, status: int) -> dict[str, Any]:
    assert reply.status_code == status, reply.text
    assert set(reply.json()) == {"error"}
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return error


@pytest.mark.parametrize(
    ("path", "body", "complaint"),
    [
        ("/v1/completions", {}, "prompt"),
        ("/v1/completions", {"prompt": []}, "prompt"),
        ("/v1/completions", {"prompt": ""}, "no tokens"),
        ("/v1/completions", {"prompt": [[]]}, "prompt"),
        ("/v1/completions", {"prompt": [10_000]}, "token id 10000"),
        ("/v1/completions", {"prompt": [-1]}, "prompt"),
        ("/v1/completions", {"prompt": "a", "max_tokens": 0}, "echo"),
        ("/v1/completions", {"prompt": "a", "temperature": -1}, "temperature"),
        ("/v1/completions", {"prompt": "a", "n": 2, "best_of": 3}, "best_of"),
        ("/v1/completions", {"prompt": "a", "stop": ["x"] * 1000}, "stop"),
        ("/v1/completions", {"prompt": "a", "stop_token_ids": [10_000]}, "stop_token_ids"),
        ("/v1/completions", {"prompt": "a", "min_tokens": 50}, "min_tokens"),
        ("/v1/completions", {"prompt": "a", "frequency_penalty": 2.5}, "frequency_penalty: "),
        ("/v1/completions", {"prompt": "a", "logit_bias": {"x": 1.0}}, "not a token id"),
        ("/v1/completions", {"prompt": "a", "stream_options": {"include_usage": True}}, "stream_options"),
        ("/v1/completions", {"prompt": "a", "prompt_logprobs": 1}, "prompt_logprobs"),
        ("/v1/completions", {"prompt": ["a"] * 4, "n": 128}, "at once"),
        ("/v1/chat/completions", {"messages": []}, "messages"),
        ("/v1/chat/completions", {"messages": [{"role": "clown", "content": "x"}]}, "role"),
        ("/v1/chat/completions", {"messages": IMAGE}, "content.0.type: Input should be 'text'"),
        ("/v1/chat/completions", {"messages": [{"role": "user"}]}, "no content"),
        ("/v1/chat/completions", {"messages": "hello"}, "messages"),
        ("/v1/chat/completions", {"messages": USER, "parallel_tool_calls": 1}, "parallel_tool_calls"),
        *(
            ("/v1/chat/completions", {"messages": USER, "chat_template_kwargs": {name: []}}, name)
            for name in ("conversation", "messages", "chat_template", "tokenize")
        ),
        ("/v1/chat/completions", {"messages": USER, "top_logprobs": 3}, "logprobs = true"),
        ("/v1/chat/completions", {"messages": USER, "response_format": {"type": "yaml"}}, "response_format"),
        ("/v1/chat/completions", {"messages": USER, "tool_choice": "required"}, "tool_choice"),
        (
            "/v1/chat/completions",
            {"messages": USER, "continue_final_message": True, "add_generation_prompt": True},
            "continue_final_message",
        ),
        ("/tokenize", {}, "either prompt or messages"),
        ("/tokenize", {"prompt": []}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": USER}, "either prompt or messages"),
        ("/detokenize", {"tokens": [2**31 - 1]}, "token id"),
        (
            "/inference/v1/generate",
            {"token_ids": [5], "sampling_params": {"repetition_penalty": 1e-30}},
            "repetition_penalty",
        ),
        ("/update_weights", {"weight_dir": "/nope", "version": 1}, "not a directory"),
        ("/update_weights", {"weight_dir": "/dev", "version": 1}, "no model.safetensors"),
        # Bodies that ask for more than the server should spend.
        ("/v1/completions", b'{"user":' + b"[" * 65 + b"]" * 65 + b"}", "64 deep"),
        ("/v1/completions", b'{"user":' + b"[" * 60_000 + b"]" * 60_000 + b"}", "64 deep"),
        ("/v1/completions", b'{"user":[' + b"{}," * 70_000 + b"1]}", "braces and brackets"),
        ("/v1/completions", b'{"prompt":[' + b"1," * 2**21 + b"1,1]}", "commas"),
        ("/v1/completions", {"prompt": [[5] * 500] * 200, "echo": True, "logprobs": 20}, "log-probabilities"),
        ("/v1/chat/completions", {"messages": USER, **MANY_SCORES}, "log-probabilities"),
        ("/v1/chat/completions", {"messages": [*USER, DEEP_CALL]}, "context length"),
        ("/inference/v1/generate", {"token_ids": [1], "request_id": "x" * 10**6}, "1024"),
        ("/update_weights", {"weight_dir": "a\0b", "version": 1}, "not a directory"),
    ],
)
def test_a_mistake_is_named_in_few_words(
    http: httpx.Client, path: str, body: dict[str, Any] | bytes, complaint: str
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = http.post(path, content=content, headers=JSON)
    assert complaint in refused(reply, 400)["message"]
    assert len(reply.content) < 1000


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"3",
        b'"text"',
        b"\xff\xfe",
        b"prompt=a",
        b'{"prompt": "a", "prompt": }',
        b'{"prompt": "\\ud800"}',
        b'{"prompt": ["a", "\\udfff"], "max_tokens": 2}',
        b'{"prompt": "a", "stop": "\\ud800"}',
        b'{"prompt": "a", "temperature": NaN}',
        b'{"prompt": "a", "temperature": Infinity}',
        b'{"prompt": "a", "temperature": 1e999}',
        b'{"prompt": "a", "max_tokens": 1' + b"0" * 5000 + b"}",
        b'{"prompt": "a", "user": ' + b"[" * 100_000,
        b'{"prompt": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
    ids=range(18),
)
def test_a_body_that_is_no_proper_json_is_refused(http: httpx.Client, content: bytes) -> None:
    refused(http.post("/v1/completions", content=content, headers=JSON), 400)


@pytest.mark.parametrize(
    "change",
    [
        *({"max_tokens": value} for value in ("5", True, 3.5, -1, 10**400)),
        *({"n": value} for value in (0, 129)),
        {"top_p": 0},
        {"top_k": -2},
        *({"logprobs": value} for value in (-1, 50_000)),
        {"seed": 2**65},
        *({"prompt": value} for value in ([300], [2**31], [1.0], [1, "a"], [1] * 1_000_000, ["a"] * 100_000)),
        *({"stop": value} for value in ([""], ["x"] * 1000)),
        {"stream": 1},
        {"logit_bias": {"5": 101}},
    ],
    ids=lambda change: str(change)[:40],
)
def test_a_value_out_of_its_bounds_is_refused(http: httpx.Client, change: dict[str, Any]) -> None:
    refused(http.post("/v1/completions", json={"prompt": "a", **change}), 400)


def test_surrogates_anywhere_are_refused(http: httpx.Client) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"x": "\ud800"}}}
    for body in (
        {"messages": USER, "tools": [tool]},
        {"messages": USER, "chat_template_kwargs": {"x": "\ud800"}},
        {"messages": USER, "tools": [{"type": "function", "function": {"name": "\udfff"}}]},
        {"messages": [{"role": "user", "content": "\ud800"}]},
    ):
        reply = http.post("/v1/chat/completions", content=json.dumps({**body, "max_tokens": 1}), headers=JSON)
        assert "surrogate" in refused(reply, 400)["message"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
def test_only_utf_8_is_read(http: httpx.Client, encoding: str) -> None:
    for text in ("a", "\\ud800", "\ud800"):
        content = f'{{"prompt": "{text}", "max_tokens": 1}}'.encode(encoding, "surrogatepass")
        refused(http.post("/v1/completions", content=content, headers=JSON), 400)
    content = '{"prompt": "é", "max_tokens": 1}'.encode("utf-8-sig")
    assert http.post("/v1/completions", content=content, headers=JSON).status_code == 200


def test_a_text_that_cannot_fit_is_refused_without_reading_it(http: httpx.Client) -> None:
    for path, body in (
        ("/v1/completions", {"prompt": "a" * 10_000_000}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a " * 5_000_000}]}),
    ):
        assert "maximum context length is 512 tokens" in refused(http.post(path, json=body), 400)["message"]


def test_many_contexts_of_text_or_tokens_are_refused(http: httpx.Client) -> None:
    most = 64 * 512
    assert http.post("/detokenize", json={"tokens": [5] * most}).status_code == 200
    assert f"at most {most}" in refused(http.post("/detokenize", json={"tokens": [5] * (most + 1)}), 400)["message"]
    assert http.post("/tokenize", json={"prompt": "a" * 20_000}).json()["count"] <= 20_000
    for body in ({"prompt": "a" * (4 * most + 1)}, {"messages": [{"role": "user", "content": "a" * 4 * most}]}):
        assert f"at most {4 * most}" in refused(http.post("/tokenize", json=body), 400)["message"]


def test_unknown_routes_models_and_methods_have_their_statuses(http: httpx.Client) -> None:
    refused(http.get("/v2"), 404)
    assert http.get("/v1/completions").headers["allow"] == "POST"
    refused(http.get("/v1/completions"), 405)
    for path, body in (("/v1/completions", {"prompt": "a"}), ("/v1/chat/completions", {"messages": USER})):
        error = refused(http.post(path, json={**body, "model": "gpt" * 10**5}), 404)
        assert len(error["message"]) < 200
        assert error["code"] == "model_not_found"
        assert "`tiny`" in error["message"]


def test_a_body_that_is_too_large_or_of_unknown_length_is_refused(http: httpx.Client) -> None:
    refused(http.post("/v1/completions", content=b" " * (MAX_BODY_BYTES + 1), headers=JSON), 413)
    refused(http.post("/v1/completions", content=iter([b"{}"]), headers=JSON), 411)


def test_an_api_key_guards_everything_but_health(tiny_dir: Path) -> None:
    with serving(tiny_dir, api_key="secret") as server, httpx.Client(base_url=server.address) as http:
        assert http.get("/health").status_code == 200
        for method, path in (
            ("GET", "/v1/models"),
            ("GET", "/metrics"),
            ("POST", "/pause"),
            ("GET", "/weight_info"),
            ("POST", "/v1/completions"),
        ):
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}):
                reply = http.request(method, path, headers=headers)
                assert refused(reply, 401)["code"] == "invalid_api_key"
                assert reply.headers["www-authenticate"] == "Bearer"
        headers = {"Authorization": "Bearer secret"}
        assert http.get("/v1/models", headers=headers).json()["data"][0]["max_model_len"] == 512
        assert "HTTPBearer" in http.get("/openapi.json", headers=headers).text
        behind_a_proxy = {**headers, "Host": "example.org", "Origin": "https://example.org"}
        assert http.post("/resume", headers=behind_a_proxy).status_code == 200
        assert "no API key" not in server.describe()
        assert "secret" not in server.describe()


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://example.org"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
        {"Host": "example.org"},
        {"Host": "example.org:8000", "Origin": "http://example.org:8000"},
        {"Host": "127.0.0.1.example.org"},
        {"Host": ""},
    ],
    ids=str,
)
def test_no_route_but_health_answers_a_web_page(http: httpx.Client, headers: dict[str, str]) -> None:
    for path, methods in http.get("/openapi.json").json()["paths"].items():
        for method in methods:
            reply = http.request(method, path.replace("{model_id}", "tiny"), headers=headers)
            assert reply.status_code == (200 if path == "/health" else 403), path
    error = refused(http.post("/pause", headers=headers), 403)
    assert (error["code"], error["type"]) == ("foreign_request", "permission_error")
    assert http.get("/openapi.json", headers=headers).status_code == 403
    assert http.post("/v1/completions", json={"prompt": "a", "max_tokens": 1}).status_code == 200


def test_programs_on_the_machine_can(server: InferenceServer, http: httpx.Client) -> None:
    port = server.address.rsplit(":", 1)[1]
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", "[::1]", "127.0.0.2"):
        for headers in ({"Host": host}, {"Host": host, "Origin": f"http://{host}"}):
            assert http.post("/resume", headers=headers).status_code == 200


def test_without_a_key_any_authorization_will_do(http: httpx.Client) -> None:
    assert http.get("/v1/models", headers={"Authorization": "Bearer"}).status_code == 200


def test_an_address_that_others_reach_needs_a_key() -> None:
    for host in ("127.0.0.1", "::1", "localhost"):
        load(ServeConfig, ["--host", host], {})
    load(ServeConfig, ["--host", "0.0.0.0"], {"SLIMRL_API_KEY": "k"})
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.org"):
        with pytest.raises(UserError, match="SLIMRL_API_KEY"):
            load(ServeConfig, ["--host", host], {})


def test_a_taken_port_is_a_message_that_names_the_flag() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"127.0.0.1:{port}: Address already in use.*another --host or --port"):
            listen("127.0.0.1", port)
    with pytest.raises(UserError, match=r"203\.0\.113\.1:0: Cannot assign requested address"):
        listen("203.0.113.1", 0)


def test_a_context_longer_than_the_models_is_refused(tiny_dir: Path) -> None:
    with pytest.raises(UserError, match="Set --context_len to 512 or less"), serving(tiny_dir, context_len=513):
        pass


@pytest.mark.slow
def test_weights_that_cannot_be_quantized_end_the_server(tiny_dir: Path) -> None:
    with pytest.raises(UserError, match="`quantization = int8` needs"), serving(tiny_dir, quantization="int8"):
        pass


def test_a_model_that_cannot_be_loaded_ends_the_server(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere"), serving(tmp_path / "nowhere"):
        pass


def test_until_the_model_is_loaded_the_answer_is_503(server: InferenceServer) -> None:
    fresh = type(server.service)(server.service.config)
    with pytest.raises(Exception, match="still being loaded") as caught:
        fresh.check_model(None) and fresh.model
    assert vars(caught.value)["status_code"] == 503
