"""`/v1/chat/completions` answers messages and token ids."""

from typing import Any

import httpx
import pytest

from packages.serve.tests.conftest import CONTEXT_LEN
from packages.serve.tests.test_completions import events
from slimrl_serve.command import InferenceServer

MESSAGES = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "What is the capital of France?"}]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}, "strict": True}}]
CHAT = "/v1/chat/completions"


def chat(http: httpx.Client, path: str = CHAT, **body: Any) -> dict[str, Any]:
    reply = http.post(path, json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_the_prompt_is_what_a_rollout_of_ours_sees(http: httpx.Client, server: InferenceServer) -> None:
    reply = chat(http, messages=MESSAGES, max_tokens=3, return_token_ids=True)
    assert reply["prompt_token_ids"] == server.service.model.policy.chat.opening(MESSAGES)
    assert http.post("/tokenize", json={"messages": MESSAGES}).json()["tokens"] == reply["prompt_token_ids"]


def test_chat_on_tokens_continues_exactly_those_tokens(http: httpx.Client) -> None:
    options = {"max_tokens": 10, "temperature": 0, "logprobs": True, "top_logprobs": 2, "return_token_ids": True}
    by_messages = chat(http, messages=MESSAGES, **options)
    tokens = by_messages["prompt_token_ids"]
    ignored = [{"role": "user", "content": "something else"}]
    by_tokens = chat(http, f"{CHAT}/tokens", messages=ignored, tokens=tokens, tools=None, **options)
    assert by_tokens["choices"][0]["token_ids"] == by_messages["choices"][0]["token_ids"]
    assert by_tokens["prompt_token_ids"] == tokens


def test_every_token_has_a_log_probability_its_bytes_and_the_likeliest(http: httpx.Client) -> None:
    reply = chat(http, messages=MESSAGES, max_tokens=10, logprobs=True, top_logprobs=3, return_token_ids=True, seed=1)
    (choice,) = reply["choices"]
    content = choice["logprobs"]["content"]
    assert len(content) == len(choice["token_ids"])
    for entry in content:
        assert len(entry["top_logprobs"]) == 3
        assert entry["logprob"] <= max(top["logprob"] for top in entry["top_logprobs"])
        assert entry["token"].startswith("bytes:") or list(entry["token"].encode()) == entry["bytes"]
    ids = chat(http, messages=MESSAGES, max_tokens=10, logprobs=True, return_tokens_as_token_ids=True, seed=1)
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


def test_a_final_message_is_continued(http: httpx.Client) -> None:
    messages = [*MESSAGES, {"role": "assistant", "content": "The capital"}]
    reply = chat(http, messages=messages, max_tokens=2, continue_final_message=True, return_token_ids=True)
    prompt = http.post("/detokenize", json={"tokens": reply["prompt_token_ids"]}).json()["prompt"]
    assert prompt.endswith("assistant\nThe capital")


@pytest.mark.nightly
def test_without_a_bound_a_reply_may_fill_the_context(http: httpx.Client) -> None:
    usage = chat(http, messages=MESSAGES, ignore_eos=True, temperature=0)["usage"]
    assert usage["total_tokens"] == CONTEXT_LEN


def test_tools_reach_the_prompt_unless_they_are_not_to_be_used(http: httpx.Client) -> None:
    def prompt(**extra: Any) -> str:
        reply = chat(http, messages=MESSAGES[1:], max_tokens=1, return_token_ids=True, tools=TOOLS, **extra)
        return http.post("/detokenize", json={"tokens": reply["prompt_token_ids"]}).json()["prompt"]

    assert '"name": "add"' in prompt()
    assert '"name": "add"' in prompt(tool_choice="auto", parallel_tool_calls=True)
    assert "add" not in prompt(tool_choice="none")
