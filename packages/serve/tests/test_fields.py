"""A field that may be meant to constrain a reply is done, or refused by its name; what changes no reply is a list."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from packages.serve.tests.conftest import CONTEXT_LEN, serving
from slimrl_serve.bodies import Body, ChatBody, CompletionBody, DetokenizeBody, TokenizeBody

USER = [{"role": "user", "content": "hi"}]
MANY = [None] * 1000
# The smallest request to each route that samples, and to those that do not.
SAMPLING = {
    "/v1/completions": {"prompt": "a", "max_tokens": 1},
    "/v1/chat/completions": {"messages": USER, "max_tokens": 1},
    "/v1/chat/completions/tokens": {"messages": USER, "tokens": [5], "max_tokens": 1},
}
OTHERS: dict[str, dict[str, Any]] = {
    "/tokenize": {"prompt": "a"},
    "/detokenize": {"tokens": [5]},
    "/inference/v1/generate": {"token_ids": [5], "sampling_params": {"max_tokens": 1}},
    "/update_weights": {"weight_dir": "/nope", "version": 1},
    "/init_weight_transfer_engine": {"init_info": {}},
    "/finish_weight_update": {"weight_version": "1"},
    "/weight_checker": {"action": "checksum"},
}
CONSTRAINTS: dict[str, Any] = {
    "guided_whitespace_pattern": " ",
    "structural_tag": "{}",
    "bad_words": ["no"],
    "allowed_token_ids": [5, 6],
    "use_beam_search": True,
    "length_penalty": 2.0,
    "truncate_prompt_tokens": 3,
    "logits_processors": ["x"],
    "thinking_token_budget": 10,
    "max_tokens_typo": 3,
}
OF_CHATS: dict[str, Any] = {
    "functions": [{"name": "f"}],
    "function_call": "auto",
    "reasoning_effort": "low",
    "modalities": ["audio"],
    "web_search_options": {},
    "chat_template": "{{ messages }}",
}


def refusal(reply: httpx.Response) -> tuple[str, str]:
    """The message and the field of a 400."""
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert error["type"] == "invalid_request_error"
    return error["message"], error["param"]


@pytest.mark.parametrize("route", SAMPLING)
def test_what_would_constrain_a_reply_is_refused_by_name(http: httpx.Client, route: str) -> None:
    fields = CONSTRAINTS | (OF_CHATS if "chat" in route else {})
    for name, value in fields.items():
        message, param = refusal(http.post(route, json={**SAMPLING[route], name: value}))
        assert name in message
        assert param == name


def test_sampling_parameters_of_generate_are_refused_by_name(http: httpx.Client) -> None:
    body = OTHERS["/inference/v1/generate"]
    for name, value in CONSTRAINTS.items():
        changed = {**body, "sampling_params": {"max_tokens": 1, name: value}}
        message, param = refusal(http.post("/inference/v1/generate", json=changed))
        assert name in message
        assert param == f"sampling_params.{name}"
    # Beside `sampling_params` they would not reach the sampler.
    for name in ("temperature", "max_tokens", "features"):
        assert refusal(http.post("/inference/v1/generate", json={**body, name: 1}))[1] == name


@pytest.mark.parametrize("route", OTHERS)
def test_no_route_passes_over_a_field(http: httpx.Client, route: str) -> None:
    message, param = refusal(http.post(route, json={**OTHERS[route], "a_field_of_tomorrow": 1}))
    assert message.startswith("a_field_of_tomorrow is not supported here")
    assert param == "a_field_of_tomorrow"


def test_a_misspelt_field_is_answered_with_the_right_one(http: httpx.Client) -> None:
    for wrong, right in (("max_tokns", "max_tokens"), ("temprature", "temperature"), ("min_token", "min_tokens")):
        message, _ = refusal(http.post("/v1/completions", json={"prompt": "a", wrong: 1}))
        assert f"Did you mean `{right}`?" in message
        assert len(message) < 200
    long = "x" * 5000
    assert len(refusal(http.post("/v1/completions", json={"prompt": "a", long: 1}))[0]) < 200


def test_what_changes_no_reply_is_let_pass(http: httpx.Client) -> None:
    ignored = {
        "user": "me",
        "metadata": {"run": "1"},
        "store": True,
        "service_tier": "flex",
        "safety_identifier": "x",
        "prompt_cache_key": "x",
        "prediction": {"type": "content", "content": "x"},
        "priority": 3,
        "request_id": "x",
        "spaces_between_special_tokens": True,
    }
    neutral = {
        "logit_bias": {},
        "bad_words": [],
        "use_beam_search": False,
        "length_penalty": 1,
        "frequency_penalty": 0,
        "repetition_penalty": 1.0,
    }
    for route, body in SAMPLING.items():
        nothing = dict.fromkeys(CONSTRAINTS | {"a_field_of_tomorrow": 0})
        for extra in (ignored, neutral, nothing):
            reply = http.post(route, json={**body, **extra})
            assert reply.status_code == 200, reply.text
        stream = {"stream": True, "stream_options": {"include_usage": True, "include_obfuscation": False}}
        assert http.post(route, json={**body, **stream}).status_code == 200
        stream["stream_options"] = {"continuous_usage_stats": True}
        assert refusal(http.post(route, json={**body, **stream}))[1] == "stream_options.continuous_usage_stats"


def test_generate_stops_at_the_end_of_the_context(http: httpx.Client) -> None:
    prompt = [5] * (CONTEXT_LEN - 3)
    for fields in ({"max_tokens": 4}, {"max_tokens": 10_000, "min_tokens": 10}, {"max_tokens": 2**31 - 1, "n": 2}, {}):
        body = {"token_ids": prompt, "sampling_params": {"ignore_eos": True, "seed": 1, **fields}}
        reply = http.post("/inference/v1/generate", json=body)
        assert reply.status_code == 200, reply.text
        for choice in reply.json()["choices"]:
            assert len(choice["token_ids"]) == 3
            assert choice["finish_reason"] == "length"
    body = {"token_ids": prompt, "sampling_params": {"max_tokens": 2, "min_tokens": 3}}
    assert refusal(http.post("/inference/v1/generate", json=body))[1] == "sampling_params.min_tokens"
    for length in (CONTEXT_LEN, CONTEXT_LEN + 1):
        reply = http.post("/inference/v1/generate", json={"token_ids": [5] * length})
        assert "maximum context length" in refusal(reply)[0]
        assert reply.json()["error"]["code"] == "context_length_exceeded"
    # OpenAI's routes refuse it, as vLLM's do.
    chat = {"messages": USER, "tokens": prompt}
    for route, given in (("/v1/completions", {"prompt": prompt}), ("/v1/chat/completions/tokens", chat)):
        reply = http.post(route, json={**given, "max_tokens": 4})
        assert reply.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny", "Qwen/Qwen3-0.6B", "/a/path/weights/step_3", "wörter und leerzeichen"])
def test_a_model_is_found_by_its_name(tiny_dir: Path, name: str) -> None:
    with serving(tiny_dir, served_model_name=name) as server, httpx.Client(base_url=server.address) as http:
        (listed,) = http.get("/v1/models").json()["data"]
        quoted = httpx.URL("http://x").copy_with(path=f"/v1/models/{name}").raw_path.decode()
        for path in (quoted, quoted.removeprefix("/v1/models/").replace("/", "%2F").join(["/v1/models/", ""])):
            reply = http.get(path)
            assert (reply.status_code, reply.json()) == (200, listed)
        for unknown in ("gpt-4o", f"{name}x", "", "a/b"):
            reply = http.get(f"/v1/models/{unknown}")
            assert reply.status_code == 404
            error = reply.json()["error"]
            assert (error["code"], error["type"], error["param"]) == ("model_not_found", "not_found_error", "model")
            assert f"`{unknown}` does not exist" in error["message"]


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (CompletionBody, {"prompt": MANY}),
        (CompletionBody, {"prompt": [MANY]}),
        (CompletionBody, {"prompt": [[1, None]] * 1000}),
        (CompletionBody, {"prompt": "a", "stop": MANY}),
        (CompletionBody, {"prompt": "a", "stop_token_ids": MANY}),
        (CompletionBody, {"prompt": "a", "logit_bias": {str(index): None for index in range(1000)}}),
        (ChatBody, {"messages": MANY}),
        (ChatBody, {"messages": [{"role": "user", "content": MANY}]}),
        (ChatBody, {"messages": [{**USER[0], "tool_calls": MANY}]}),
        (ChatBody, {"messages": USER, "tools": MANY}),
        (TokenizeBody, {"messages": MANY}),
        (DetokenizeBody, {"tokens": MANY}),
    ],
)
def test_a_list_of_mistakes_is_a_few_errors(kind: type[Body], fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        kind.model_validate(fields)
    assert caught.value.error_count() <= 5
