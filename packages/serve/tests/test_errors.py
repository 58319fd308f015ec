"""Clients' mistakes are answered in OpenAI's format, with the right status and field, never with a 500."""

import json
import select
import socket
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from packages.serve.tests.conftest import connected, serving
from slimrl.config.reading.load import load
from slimrl.config.serve import ServeConfig
from slimrl.errors import UserError
from slimrl_serve.bodies import IGNORED, OFF, Body, ChatBody, CompletionBody, TokenizeBody
from slimrl_serve.command import InferenceServer
from slimrl_serve.http.server import listen
from slimrl_serve.json_route import MAX_BODY_BYTES

CHAT, COMPLETIONS, GENERATE = "/v1/chat/completions", "/v1/completions", "/inference/v1/generate"
USER = [{"role": "user", "content": "hi"}]
IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
DEEP = {"name": "f", "arguments": '{"a":' * 900 + "1" + "}" * 900}
JSON = {"Content-Type": "application/json"}
MANY = [None] * 1000
CONTEXT = "maximum context length is 512 tokens"


def refused(reply: httpx.Response, status: int = 400) -> dict[str, Any]:
    assert reply.status_code == status, reply.text
    assert set(reply.json()) == {"error"}
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return error


@pytest.mark.parametrize(
    ("path", "body", "complaint"),
    [
        *(
            (COMPLETIONS, {"prompt": "a", **change}, complaint)
            for change, complaint in (
                ({"prompt": []}, "prompt"),
                ({"prompt": ""}, "no tokens"),
                ({"prompt": [[]]}, "prompt"),
                ({"prompt": [10_000]}, "token id 10000"),
                ({"prompt": [-1]}, "prompt"),
                ({"prompt": "a" * 10_000_000}, CONTEXT),
                ({"prompt": ["a"] * 4, "n": 128}, "at once"),
                ({"prompt": ["a"] * 100_000}, "at once"),
                ({"prompt": [[5] * 500] * 200, "echo": True, "logprobs": 20}, "log-probabilities"),
                ({"echo": True, "n": 2}, "echo needs n = 1"),
                ({"temperature": -1}, "temperature"),
                ({"stop": ["x"] * 1000}, "stop"),
                ({"stop_token_ids": [10_000]}, "stop_token_ids"),
                ({"stream_options": {"include_usage": True}}, "stream_options"),
                ({"prompt_logprobs": 1}, "prompt_logprobs"),
                *(({"max_tokens": value}, "max_tokens") for value in ("5", True, 3.5, 0, 10**400)),
                *(({"n": value}, "n: ") for value in (0, 129)),
                *(({"prompt": value}, "prompt") for value in ([300], [2**31], [1.0], [1, "a"], [1] * 10**6)),
                *(({"logprobs": value}, "logprobs") for value in (-1, 50_000)),
                ({"stop": [""]}, "stop"),
                *(
                    ({name: value}, name)
                    for name, value in (("top_p", 0), ("top_k", -2), ("seed", 2**65), ("stream", 1))
                ),
            )
        ),
        (COMPLETIONS, {}, "prompt"),
        *(
            (CHAT, {"messages": USER, **change}, complaint)
            for change, complaint in (
                ({"messages": []}, "messages"),
                ({"messages": [{"role": "clown", "content": "x"}]}, "role"),
                ({"messages": IMAGE}, "content.0.type: Input should be 'text'"),
                ({"messages": [{"role": "user"}]}, "no content"),
                ({"messages": "hello"}, "messages"),
                ({"messages": [{"role": "user", "content": "a " * 5_000_000}]}, CONTEXT),
                ({"messages": [*USER, {"role": "assistant", "tool_calls": [{"function": DEEP}]}]}, "context length"),
                *(
                    ({"chat_template_kwargs": {name: []}}, name)
                    for name in ("conversation", "messages", "chat_template", "tokenize")
                ),
                ({"top_logprobs": 3}, "logprobs = true"),
                ({"n": 128, "logprobs": True, "top_logprobs": 20}, "log-probabilities"),
                ({"tool_choice": "required"}, "tool_choice"),
                ({"continue_final_message": True}, "continue_final_message"),
                ({"stream": True, "stream_options": {"continuous_usage_stats": True}}, "continuous_usage_stats"),
            )
        ),
        ("/tokenize", {}, "either prompt or messages"),
        ("/tokenize", {"prompt": []}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": USER}, "either prompt or messages"),
        ("/tokenize", {"prompt": "a" * (4 * 64 * 512 + 1)}, f"at most {4 * 64 * 512}"),
        ("/tokenize", {"messages": [{"role": "user", "content": "a" * 4 * 64 * 512}]}, f"at most {4 * 64 * 512}"),
        (GENERATE, {"token_ids": [1], "request_id": "x" * 10**6}, "1024"),
        ("/update_weights", {"weight_dir": "/nope", "version": 1}, "not a directory"),
        ("/update_weights", {"weight_dir": "/dev", "version": 1}, "no model.safetensors"),
        ("/update_weights", {"weight_dir": "a\0b", "version": 1}, "not a directory"),
        # Bodies that ask for more than the server should spend.
        (COMPLETIONS, b'{"user":' + b"[" * 65 + b"]" * 65 + b"}", "64 deep"),
        (COMPLETIONS, b'{"user":' + b"[" * 60_000 + b"]" * 60_000 + b"}", "64 deep"),
        (COMPLETIONS, b'{"user":[' + b"{}," * 70_000 + b"1]}", "braces and brackets"),
        (COMPLETIONS, b'{"prompt":[' + b"1," * 2**21 + b"1,1]}", "commas"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_mistake_is_named_in_few_words(
    http: httpx.Client, path: str, body: dict[str, Any] | bytes, complaint: str
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = http.post(path, content=content, headers=JSON)
    error = refused(reply)
    assert complaint in f"{error['message']} {error['param']}"
    assert len(reply.content) < 1000


SURROGATE = {"type": "function", "function": {"name": "f", "parameters": {"x": "\ud800"}}}
CODECS = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        *((content, "") for content in (b"", b"{", b"null", b"[]", b"3", b'"text"', b"\xff\xfe", b"prompt=a")),
        (b'{"prompt": "a", "prompt": }', "JSON"),
        *((b'{"prompt": "a", "temperature": %s}' % number, "") for number in (b"NaN", b"Infinity", b"1e999")),
        (b'{"prompt": "a", "max_tokens": 1' + b"0" * 5000 + b"}", ""),
        (b'{"prompt": "a", "user": ' + b"[" * 100_000, ""),
        (b'{"prompt": ' + b"[" * 5000 + b"]" * 5000 + b"}", ""),
        (b'{"prompt": "\\ud800"}', "surrogate"),
        (b'{"prompt": ["a", "\\udfff"], "max_tokens": 2}', "surrogate"),
        (b'{"prompt": "a", "stop": "\\ud800"}', "surrogate"),
        *(
            (json.dumps({"prompt": "a", "messages": USER, **body}).encode(), "surrogate")
            for body in (
                {"tools": [SURROGATE]},
                {"chat_template_kwargs": {"x": "\ud800"}},
                {"messages": [{"role": "user", "content": "\ud800"}]},
            )
        ),
        *(
            (f'{{"prompt": "{text}", "max_tokens": 1}}'.encode(codec, "surrogatepass"), "")
            for text in ("a", "\\ud800", "\ud800")
            for codec in CODECS
        ),
    ],
    ids=range(39),
)
def test_a_body_that_is_no_proper_json_is_refused(http: httpx.Client, content: bytes, complaint: str) -> None:
    for path in (COMPLETIONS, CHAT):
        assert complaint in refused(http.post(path, content=content, headers=JSON))["message"]


def test_a_body_may_begin_with_the_mark_of_utf_8(http: httpx.Client) -> None:
    content = '{"prompt": "é", "max_tokens": 1}'.encode("utf-8-sig")
    assert http.post(COMPLETIONS, content=content, headers=JSON).status_code == 200


# The smallest request to each route with a body.
BODIES: dict[str, dict[str, Any]] = {
    COMPLETIONS: {"prompt": "a", "max_tokens": 1},
    CHAT: {"messages": USER, "max_tokens": 1},
    f"{CHAT}/tokens": {"messages": USER, "tokens": [5], "max_tokens": 1},
    GENERATE: {"token_ids": [5], "sampling_params": {"max_tokens": 1}},
    "/tokenize": {"prompt": "a"},
    "/update_weights": {"weight_dir": "/nope", "version": 1},
}
CONSTRAINT = {"json": {"allOf": [{"type": "string", "pattern": ".*[ab]{9}.*a.*"}]}}


@pytest.mark.parametrize("path", BODIES)
def test_what_would_constrain_a_reply_is_refused_by_name_and_unless_it_is_null(http: httpx.Client, path: str) -> None:
    fields = dict.fromkeys(["a_field_of_tomorrow", "structured_outputs", *OFF], CONSTRAINT)
    del fields["stream"]  # a field of its own of chat and completions
    for name, value in fields.items():
        for place in ("", "sampling_params.") if path == GENERATE else ("",):
            inner = {name: value}
            if place:
                inner = {"sampling_params": {"max_tokens": 1, **inner}}
            error = refused(http.post(path, json={**BODIES[path], **inner}))
            assert error["message"].startswith(f"{name} is not supported here")
            assert (error["param"], error["type"]) == (place + name, "invalid_request_error")
    if "weight" not in path:
        assert http.post(path, json={**BODIES[path], **dict.fromkeys(fields)}).status_code == 200


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("max_tokns", "max_tokens"), ("temprature", "temperature"), ("x" * 5000, "")],
    ids=lambda name: name[:12],
)
def test_a_misspelt_field_is_answered_with_the_right_one(http: httpx.Client, wrong: str, right: str) -> None:
    message = refused(http.post(COMPLETIONS, json={"prompt": "a", wrong: 1}))["message"]
    assert (f"Did you mean `{right}`?" in message or not right) and len(message) < 200


def test_what_changes_no_reply_is_let_pass(http: httpx.Client) -> None:
    for path in (COMPLETIONS, CHAT, f"{CHAT}/tokens"):
        for extra in (OFF, dict.fromkeys(IGNORED, "any")):
            reply = http.post(path, json={**BODIES[path], **extra})
            assert reply.status_code == 200, reply.text


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (CompletionBody, {"prompt": MANY}),
        (CompletionBody, {"prompt": [[1, None]] * 1000}),
        (CompletionBody, {"prompt": "a", "stop": MANY}),
        (ChatBody, {"messages": [{**USER[0], "tool_calls": MANY}]}),
        (ChatBody, {"messages": USER, "tools": MANY}),
        (TokenizeBody, {"messages": MANY}),
    ],
)
def test_a_list_of_mistakes_is_a_few_errors(kind: type[Body], fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        kind.model_validate(fields)
    assert caught.value.error_count() <= 5


def test_unknown_routes_models_methods_and_lengths_have_their_statuses(http: httpx.Client) -> None:
    refused(http.get("/v2"), 404)
    assert http.get(COMPLETIONS).headers["allow"] == "POST"
    refused(http.get(COMPLETIONS), 405)
    refused(http.post(COMPLETIONS, content=b" " * (MAX_BODY_BYTES + 1), headers=JSON), 413)
    refused(http.post(COMPLETIONS, content=iter([b"{}"]), headers=JSON), 411)
    for path in (COMPLETIONS, CHAT):
        error = refused(http.post(path, json={**BODIES[path], "model": "gpt" * 10**5}), 404)
        assert (error["code"], "`tiny`" in error["message"], len(error["message"]) < 200) == (
            "model_not_found",
            True,
            True,
        )


def test_a_body_of_unknown_length_is_read_before_its_refusal(http: httpx.Client) -> None:
    # If the server closed a connection with unread bytes, the kernel would reset it, and the client lose the answer.
    with socket.create_connection((http.base_url.host, http.base_url.port), timeout=10) as client:
        client.sendall(f"POST {COMPLETIONS} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        time.sleep(0.3)
        assert not select.select([client], [], [], 0)[0]
        client.sendall(b"2\r\n{}\r\n0\r\n\r\n")
        assert client.makefile("rb").read().startswith(b"HTTP/1.1 411 ")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny", "Qwen/Qwen3-0.6B", "/a/path/weights/step_3", "wörter und leerzeichen"])
def test_a_model_is_found_by_its_name(tiny_dir: Path, name: str) -> None:
    with connected(tiny_dir, served_model_name=name) as (_, http):
        (listed,) = http.get("/v1/models").json()["data"]
        quoted = httpx.URL("http://x").copy_with(path=f"/v1/models/{name}").raw_path.decode()
        for path in (quoted, quoted.removeprefix("/v1/models/").replace("/", "%2F").join(["/v1/models/", ""])):
            reply = http.get(path)
            assert (reply.status_code, reply.json()) == (200, listed)
        for unknown in ("gpt-4o", f"{name}x", "", "a/b"):
            error = refused(http.get(f"/v1/models/{unknown}"), 404)
            assert (error["code"], error["type"], error["param"]) == ("model_not_found", "not_found_error", "model")
            assert f"`{unknown}` does not exist" in error["message"]


def test_an_api_key_guards_everything_but_health(tiny_dir: Path) -> None:
    with connected(tiny_dir, api_key="secret") as (server, http):
        assert http.get("/health").status_code == 200
        for method, path in (
            *(("GET", path) for path in ("/v1/models", "/is_paused", "/weight_info")),
            ("POST", COMPLETIONS),
        ):
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}):
                reply = http.request(method, path, headers=headers)
                assert refused(reply, 401)["code"] == "invalid_api_key"
                assert reply.headers["www-authenticate"] == "Bearer"
        headers = {"Authorization": "Bearer secret"}
        assert http.get("/v1/models", headers=headers).json()["data"][0]["max_model_len"] == 512
        assert "HTTPBearer" in http.get("/openapi.json", headers=headers).text
        behind_a_proxy = {**headers, "Host": "example.org", "Origin": "https://example.org"}
        assert http.get("/is_paused", headers=behind_a_proxy).status_code == 200
        assert "no API key" not in server.describe() and "secret" not in server.describe()


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
    error = refused(http.get("/is_paused", headers=headers), 403)
    assert (error["code"], error["type"]) == ("foreign_request", "permission_error")
    assert http.get("/openapi.json", headers=headers).status_code == 403
    assert http.post(COMPLETIONS, json={"prompt": "a", "max_tokens": 1}).status_code == 200


def test_programs_on_the_machine_are_answered(server: InferenceServer, http: httpx.Client) -> None:
    port = server.address.rsplit(":", 1)[1]
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", "[::1]", "127.0.0.2"):
        for headers in ({"Host": host}, {"Host": host, "Origin": f"http://{host}"}):
            assert http.get("/is_paused", headers=headers).status_code == 200
    assert http.get("/v1/models", headers={"Authorization": "Bearer"}).status_code == 200  # without a key any will do


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_an_address_that_others_reach_needs_a_key(host: str) -> None:
    for loopback in ("127.0.0.1", "::1", "localhost"):
        load(ServeConfig, ["--host", loopback], {})
    load(ServeConfig, ["--host", host], {"SLIMRL_API_KEY": "k"})
    with pytest.raises(UserError, match="SLIMRL_API_KEY"):
        load(ServeConfig, ["--host", host], {})


def test_a_taken_port_is_a_message_that_names_the_flag() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"127.0.0.1:{port}: Address already in use.*another --host or --port"):
            listen("127.0.0.1", port)
    with pytest.raises(UserError, match=r"203\.0\.113\.1:0: Cannot assign requested address"):
        listen("203.0.113.1", 0)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"context_len": 513}, "Set --context_len to 512 or less"),
        ({}, "nowhere"),
    ],
)
def test_a_model_that_cannot_be_served_as_asked_ends_the_server(
    tiny_dir: Path, tmp_path: Path, settings: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(UserError, match=complaint), serving(tiny_dir if settings else tmp_path / "nowhere", **settings):
        pass


def test_until_the_model_is_loaded_the_answer_is_503(server: InferenceServer) -> None:
    fresh = type(server.service)(server.service.config)
    with pytest.raises(Exception, match="still being loaded") as caught:
        fresh.check_ready()
    assert vars(caught.value)["status_code"] == 503
