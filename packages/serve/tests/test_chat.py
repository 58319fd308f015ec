"""`/v1/chat/completions` answers messages and token ids, and finds the tool calls that the model meant."""

import json
from typing import Any

import httpx
import pytest

from packages.serve.tests.conftest import CONTEXT_LEN
from packages.serve.tests.test_completions import complete, events
from slimrl.models.chat.call_reader import CallReader
from slimrl_serve.command import InferenceServer
from slimrl_serve.generation import Choice
from tests.tiny import tiny_tokenizer

MESSAGES = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "What is the capital of France?"}]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}, "strict": True}}]
CHAT = "/v1/chat/completions"


def chat(http: httpx.Client, path: str = CHAT, **body: Any) -> dict[str, Any]:
    return complete(http, path, **{"messages": MESSAGES, **body})


def prompt_of(http: httpx.Client, **body: Any) -> str:
    """The prompt of a chat as text."""
    reply = chat(http, max_tokens=1, return_token_ids=True, **body)
    return str(tiny_tokenizer().decode(reply["prompt_token_ids"]))


def test_the_prompt_is_what_a_rollout_of_ours_sees(http: httpx.Client, server: InferenceServer) -> None:
    reply = chat(http, max_tokens=3, return_token_ids=True)
    assert reply["prompt_token_ids"] == server.service.policy.chat.opening(MESSAGES)
    assert http.post("/tokenize", json={"messages": MESSAGES}).json()["tokens"] == reply["prompt_token_ids"]


def test_chat_on_tokens_continues_exactly_those_tokens(http: httpx.Client) -> None:
    options = {"max_tokens": 10, "temperature": 0, "logprobs": True, "top_logprobs": 2, "return_token_ids": True}
    by_messages = chat(http, **options)
    tokens = by_messages["prompt_token_ids"]
    ignored = [{"role": "user", "content": "something else"}]
    by_tokens = chat(http, f"{CHAT}/tokens", messages=ignored, tokens=tokens, tools=None, **options)
    assert by_tokens["choices"][0]["token_ids"] == by_messages["choices"][0]["token_ids"]
    assert by_tokens["prompt_token_ids"] == tokens


def test_every_token_has_a_log_probability_its_bytes_and_the_likeliest(http: httpx.Client) -> None:
    reply = chat(http, max_tokens=10, logprobs=True, top_logprobs=3, return_token_ids=True, seed=1)
    (choice,) = reply["choices"]
    content = choice["logprobs"]["content"]
    assert len(content) == len(choice["token_ids"])
    for entry in content:
        assert len(entry["top_logprobs"]) == 3
        assert entry["logprob"] <= max(top["logprob"] for top in entry["top_logprobs"])
        known = None if "\ufffd" in entry["token"] else list(entry["token"].encode())  # no part of a character
        assert entry["bytes"] == known
    ids = chat(http, max_tokens=10, logprobs=True, return_tokens_as_token_ids=True, seed=1)
    named = [entry["token"] for entry in ids["choices"][0]["logprobs"]["content"]]
    assert named == [f"token_id:{token}" for token in choice["token_ids"]]


@pytest.mark.parametrize(
    "extra", [{}, {"n": 3, "logprobs": True, "top_logprobs": 1}, {"stop": ["a", "e"]}, {"tools": TOOLS}]
)
def test_a_stream_says_what_the_whole_reply_says(http: httpx.Client, extra: dict[str, Any]) -> None:
    body = {"messages": MESSAGES, "max_completion_tokens": 30, "seed": 5, "return_token_ids": True, **extra}
    whole = chat(http, **body)
    *chunks, last = events(http, CHAT, {**body, "stream_options": {"include_usage": True}})
    for choice in whole["choices"]:
        mine = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == choice["index"]]
        assert mine[0]["delta"]["role"] == "assistant"
        assert chunks[choice["index"]]["prompt_token_ids"] == whole["prompt_token_ids"]
        assert "".join(piece["delta"].get("content", "") for piece in mine) == choice["message"]["content"]
        assert [token for piece in mine for token in piece.get("token_ids", [])] == choice["token_ids"]
        assert mine[-1]["finish_reason"] == choice["finish_reason"]
        if "logprobs" in extra:
            content = [entry for piece in mine if piece["logprobs"] for entry in piece["logprobs"]["content"]]
            assert [entry["token"] for entry in content] == [e["token"] for e in choice["logprobs"]["content"]]
    assert last["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]


def test_a_prompt_may_end_with_the_last_message(http: httpx.Client) -> None:
    assert not prompt_of(http, messages=MESSAGES, add_generation_prompt=False).rstrip().endswith("assistant")


@pytest.mark.nightly
def test_without_a_bound_a_reply_may_fill_the_context(http: httpx.Client) -> None:
    assert chat(http, ignore_eos=True, temperature=0)["usage"]["total_tokens"] == CONTEXT_LEN


@pytest.mark.parametrize(
    ("choice", "is_there"),
    [({}, True), ({"tool_choice": "auto", "parallel_tool_calls": True}, True), ({"tool_choice": "none"}, False)],
)
def test_tools_reach_the_prompt_unless_they_are_not_to_be_used(http: httpx.Client, choice: Any, is_there: bool) -> None:
    assert ('"name": "add"' in prompt_of(http, messages=MESSAGES[1:], tools=TOOLS, **choice)) == is_there


def call_of(query: str) -> str:
    return f"<tool_call>{json.dumps({'name': 'search_pages', 'arguments': {'query': query}})}</tool_call>"


JSON = '{"name": "search_pages", "arguments": {"query": "b"}}'
# Settings and replies -> their texts and queries.
FORMS = [
    ("lenient", JSON, "", ["b"]),
    ("lenient", f"So:\n```json\n{JSON}\n```", "So:", ["b"]),
    ("lenient", "[search_pages(query='b')]", "", ["b"]),
    ("lenient", f"{JSON} or {call_of('c')}", f"{JSON} or {call_of('c')}", []),
    ("lenient", JSON.replace("search_pages", "delete_pages"), JSON.replace("search_pages", "delete_pages"), []),
    ("json", call_of("b"), call_of("b"), []),
    ("template", JSON, JSON, []),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("case", FORMS)
def test_calls_are_read_in_the_form_of_the_setting(
    http: httpx.Client, server: InferenceServer, monkeypatch: pytest.MonkeyPatch, case: Any, stream: bool
) -> None:
    setting, text, content, queries = case
    monkeypatch.setattr(server.service.policy.chat, "calls", CallReader("hermes", setting))
    check_calls(http, monkeypatch, stream, (text, False, content, queries))


TAG = "what the tag </tool_call> is for"
THOUGHTS = f"<think>\nI could call {call_of('draft')} first, but no.\n</think>"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "case",
    [
        (call_of(TAG), False, "", [TAG]),
        (f"So: {call_of(TAG)}{call_of('b')}", False, "So:", [TAG, "b"]),
        (f"{THOUGHTS}\n{call_of('meant')}", False, THOUGHTS, ["meant"]),
        (f"{THOUGHTS.removeprefix('<think>')}{call_of('meant')}", True, THOUGHTS.removeprefix("<think>"), ["meant"]),
        (f"{THOUGHTS}\n{call_of('a </think> b')}", False, THOUGHTS, ["a </think> b"]),
        (f"{THOUGHTS}\nParis", False, f"{THOUGHTS}\nParis", []),
        (f"<think>{call_of('draft')}", False, f"<think>{call_of('draft')}", []),
    ],
)
def test_the_calls_of_a_reply_are_those_that_were_meant(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch, stream: bool, case: Any
) -> None:
    check_calls(http, monkeypatch, stream, case)


def check_calls(http: httpx.Client, monkeypatch: pytest.MonkeyPatch, stream: bool, case: Any) -> None:
    text, in_thoughts, content, queries = case
    # The model's reply is replaced by `text`, of which each token is five characters.
    monkeypatch.setattr(Choice, "text_so_far", lambda one, done: text if done else text[: 5 * len(one.token_ids)])
    monkeypatch.setattr(Choice, "finish_reason", "stop")
    prompt = complete(http, "/tokenize", prompt="So.<think>\n" if in_thoughts else "So.")["tokens"]
    body = {"messages": MESSAGES, "tokens": prompt, "max_tokens": 40}
    body["tools"] = [{"type": "function", "function": {"name": "search_pages"}}]
    if stream:
        choices = [chunk["choices"][0] for chunk in events(http, f"{CHAT}/tokens", body)]
    else:
        choices = chat(http, f"{CHAT}/tokens", **body)["choices"]
    pieces = [choice.get("delta") or choice.get("message") or {} for choice in choices]
    calls = [call["function"] for piece in pieces for call in piece.get("tool_calls", [])]
    assert "".join(piece.get("content") or "" for piece in pieces) == content
    assert [json.loads(call["arguments"])["query"] for call in calls] == queries
    assert choices[-1]["finish_reason"] == ("tool_calls" if queries else "stop")
