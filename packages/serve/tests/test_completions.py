"""`/v1/completions` and the routes on token ids answer as the engine itself does."""

import json
import random
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from packages.serve.tests.conftest import CONTEXT_LEN, Reference
from slimrl.inference.scheduler import RequestOptions
from slimrl.types import SamplingParams
from tests.tiny import END, tiny_tokenizer

COMPLETIONS = "/v1/completions"
PROMPT = list(range(10, 30))
ECHO = {"prompt": PROMPT, "echo": True, "logprobs": 1}


def complete(http: httpx.Client, path: str = COMPLETIONS, **body: Any) -> dict[str, Any]:
    reply = http.post(path, json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def events(http: httpx.Client, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The objects of a stream; the last line must be the mark of its end."""
    with http.stream("POST", path, json={**body, "stream": True}) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        lines = [line.removeprefix("data: ") for line in reply.iter_lines() if line]
    assert lines.pop() == "[DONE]"
    return map(json.loads, lines)


def test_an_event_is_one_line_for_clients_that_end_lines_at_unicode_separators(http: httpx.Client) -> None:
    prompt = "a\u2028b\x85c\u2029d"
    body = {"model": "tiny", "prompt": prompt, "echo": True, "max_tokens": 1}
    text = "".join(choice["text"] for event in events(http, COMPLETIONS, body) for choice in event["choices"])
    assert text.startswith(prompt)


def test_greedy_tokens_and_log_probabilities_are_the_engines(http: httpx.Client, reference: Reference) -> None:
    rng = random.Random(0)
    for _ in range(10):
        prompt = [rng.randrange(3, 300) for _ in range(rng.randrange(1, 60))]
        body = {"prompt": prompt, "max_tokens": 20, "temperature": 0, "logprobs": 3, "return_token_ids": True}
        reply = complete(http, model="tiny", **body)
        expected = reference.sample(prompt, SamplingParams(20, 0.0), RequestOptions(top_logprobs=3))
        (choice,) = reply["choices"]
        assert choice["token_ids"] == expected.completion_ids
        assert choice["prompt_token_ids"] == reply["prompt_token_ids"] == prompt
        assert choice["token_versions"] == [-1] * len(expected.completion_ids)
        assert choice["logprobs"]["token_logprobs"] == pytest.approx(expected.logprobs, abs=1e-4)
        assert choice["finish_reason"] == expected.finish_reason
        assert choice["text"] == reference.policy.chat.text(expected.completion_ids)
        for named, logprob in zip(choice["logprobs"]["top_logprobs"], expected.logprobs, strict=True):
            assert max(named.values()) == pytest.approx(logprob, abs=1e-4)
        assert reply["usage"]["completion_tokens"] == len(expected.completion_ids)


def test_sampled_tokens_have_the_log_probabilities_of_the_plain_forward(
    http: httpx.Client, reference: Reference
) -> None:
    body = {"prompt": PROMPT, "max_tokens": 32, "seed": 4, "logprobs": 0, "return_token_ids": True}
    (choice,) = complete(http, **body)["choices"]
    scores = reference.score(PROMPT, choice["token_ids"])
    assert choice["logprobs"]["token_logprobs"] == pytest.approx(scores, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "extra",
    [
        {"temperature": 0},
        {"seed": 3, "n": 3},
        {"seed": 4, "temperature": 0.7, "top_p": 0.9, "top_k": 40, "min_p": 0.01},
        {"seed": 5, "stop": ["e", " "]},
        {"seed": 6, "stop": "a", "include_stop_str_in_output": True},
        {"seed": 7, "skip_special_tokens": False, "stop_token_ids": [100, 101]},
        {"seed": 8, "prompt": "Hello", "echo": True, "logprobs": 2},
        {"seed": 9, "prompt": ["a", "b"], "echo": True, "ignore_eos": True},
    ],
)
def test_a_stream_says_what_the_whole_reply_says(http: httpx.Client, extra: dict[str, Any]) -> None:
    body = {"prompt": PROMPT, "max_tokens": 40, "logprobs": 1, "return_token_ids": True, **extra}
    whole = complete(http, **body)
    *chunks, last = events(http, COMPLETIONS, {**body, "stream_options": {"include_usage": True}})
    for choice in whole["choices"]:
        mine = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == choice["index"]]
        assert "".join(piece["text"] for piece in mine) == choice["text"]
        assert [token for piece in mine for token in piece["token_ids"]] == choice["token_ids"]
        for key in ("tokens", "token_logprobs"):
            streamed = [item for piece in mine for item in piece["logprobs"][key]]
            assert streamed == choice["logprobs"][key] or streamed[1:] == pytest.approx(choice["logprobs"][key][1:])
        assert [piece["finish_reason"] for piece in mine][-1] == choice["finish_reason"]
        assert {piece["finish_reason"] for piece in mine[:-1]} <= {None}
    assert last["choices"] == []
    assert {**last["usage"], "prompt_tokens_details": {}} == {**whole["usage"], "prompt_tokens_details": {}}


def test_a_seed_decides_the_text_and_choices_differ(http: httpx.Client) -> None:
    def texts(**changes: Any) -> list[str]:
        body = {"prompt": PROMPT, "max_tokens": 12, "seed": 11, "n": 4, **changes}
        return [choice["text"] for choice in complete(http, **body)["choices"]]

    assert texts() == texts() != texts(seed=12)
    assert len(set(texts())) > 1
    assert texts()[:1] == texts(n=1)


def test_all_shapes_of_a_prompt_mean_the_same_in_the_order_of_the_prompts(http: httpx.Client) -> None:
    text = "What is the capital?"
    token_ids = http.post("/tokenize", json={"prompt": text}).json()["tokens"]
    assert tiny_tokenizer().decode(token_ids) == text
    options = {"max_tokens": 5, "temperature": 0, "return_token_ids": True}
    shapes: list[Any] = [text, token_ids, [text] * 2, [token_ids] * 2]
    replies = [complete(http, prompt=prompt, **options) for prompt in shapes]
    choices = [choice for reply in replies for choice in reply["choices"]]
    assert len({(choice["text"], *choice["prompt_token_ids"]) for choice in choices}) == 1
    assert [choice["index"] for choice in replies[3]["choices"]] == [0, 1]
    reply = complete(http, prompt=[[10, 11], [20, 21]], n=2, max_tokens=2, return_token_ids=True)
    assert [choice["prompt_token_ids"] for choice in reply["choices"]] == [[10, 11], [10, 11], [20, 21], [20, 21]]
    assert reply["usage"]["prompt_tokens"] == 4 and "prompt_token_ids" not in reply


def test_an_echo_scores_the_prompt(http: httpx.Client, reference: Reference) -> None:
    expected = reference.sample(PROMPT, SamplingParams(1, 0.0), RequestOptions(prompt_logprobs=2))
    for _ in range(2):  # the second time the prompt is in the cache
        (choice,) = complete(http, **{**ECHO, "max_tokens": 1, "temperature": 0, "logprobs": 2})["choices"]
        scored = choice["logprobs"]
        assert choice["text"].startswith(reference.policy.chat.text(PROMPT))
        assert len(scored["tokens"]) == len(PROMPT) + 1
        assert scored["token_logprobs"][0] is scored["top_logprobs"][0] is None
        own = scored["token_logprobs"][1 : len(PROMPT)]
        assert own == pytest.approx([score.logprob for score in expected.scored], abs=1e-4)
        for top, logprob, score in zip(scored["top_logprobs"][1:], own, expected.scored, strict=False):
            assert (max(top.values()) == logprob) == (score.rank == 1)


@pytest.mark.parametrize("skips", [True, False])
@pytest.mark.parametrize("as_text", [True, False])
def test_an_echo_begins_with_the_prompt(http: httpx.Client, as_text: bool, skips: bool) -> None:
    text = f"Ünïcode: 你好, 🙂🙃! The quick brown fox{END}then"
    prompt = text if as_text else tiny_tokenizer().encode(text, add_special_tokens=False)
    body = {"prompt": prompt, "echo": True, "max_tokens": 1, "stop": "fox", "skip_special_tokens": skips}
    (choice,) = complete(http, **body)["choices"]
    assert choice["text"].startswith(text if as_text or not skips else text.replace(END, ""))


def test_a_stop_token_ends_the_text_but_is_among_the_tokens(http: httpx.Client) -> None:
    body = {"prompt": PROMPT, "temperature": 0, "max_tokens": 10, "return_token_ids": True, "logprobs": 0}
    (free,) = complete(http, **body)["choices"]
    third = free["token_ids"][2]
    (stopped,) = complete(http, **body, stop_token_ids=[third], skip_special_tokens=False)["choices"]
    assert stopped["finish_reason"] == "stop"
    assert stopped["token_ids"] == free["token_ids"][: free["token_ids"].index(third) + 1]
    assert len(stopped["logprobs"]["token_logprobs"]) == len(stopped["token_ids"])
    assert stopped["text"] == tiny_tokenizer().decode(stopped["token_ids"][:-1])


def test_cached_prompt_tokens_are_told(http: httpx.Client) -> None:
    prompt = list(range(200, 240))
    usages = [complete(http, prompt=prompt, max_tokens=1)["usage"] for _ in range(2)]
    assert usages[1]["prompt_tokens_details"] == {"cached_tokens": len(prompt) - 1}


def test_generate_takes_and_gives_token_ids(http: httpx.Client, reference: Reference) -> None:
    sampling = {"temperature": 0, "max_tokens": 9, "logprobs": 1, "n": 2}
    sampling |= {"repetition_penalty": 1.0, "skip_special_tokens": False, "stop_token_ids": []}
    body = {"model": "tiny", "token_ids": PROMPT, "sampling_params": sampling, "request_id": "r", "priority": 0}
    reply = complete(http, "/inference/v1/generate", **body)
    expected = reference.sample(PROMPT, SamplingParams(9, 0.0), RequestOptions())
    assert reply["request_id"] == "r"
    for choice in reply["choices"]:
        assert choice["token_ids"] == expected.completion_ids
        assert choice["finish_reason"] == expected.finish_reason
        content = choice["logprobs"]["content"]
        assert [entry["token"] for entry in content] == [f"token_id:{token}" for token in expected.completion_ids]
        assert [entry["logprob"] for entry in content] == pytest.approx(expected.logprobs, abs=1e-4)


TOO_LONG = "context_length_exceeded"
LONG = [5] * (CONTEXT_LEN - 3)  # three tokens fit behind it


@pytest.mark.parametrize(
    ("path", "body", "wanted"),
    [
        (COMPLETIONS, {"prompt": [*LONG, 5, 5]}, 1),
        (COMPLETIONS, {"prompt": [*LONG, 5, 5, 5], "max_tokens": 1}, TOO_LONG),
        (COMPLETIONS, {"prompt": PROMPT, "max_tokens": CONTEXT_LEN}, TOO_LONG),
        (COMPLETIONS, {"prompt": LONG, "max_tokens": 4}, TOO_LONG),  # as in vLLM
        ("/v1/chat/completions/tokens", {"messages": [{"role": "user"}], "tokens": LONG, "max_tokens": 4}, TOO_LONG),
        # The route of vLLM for token ids stops at the end of the context instead.
        *(
            ("/inference/v1/generate", {"token_ids": LONG, "sampling_params": {"ignore_eos": True, **sampling}}, 3)
            for sampling in ({"max_tokens": 4}, {"max_tokens": 2**31 - 1}, {})
        ),
        *(("/inference/v1/generate", {"token_ids": [5] * (CONTEXT_LEN + more)}, TOO_LONG) for more in (0, 1)),
    ],
)
def test_the_context_bounds_prompt_and_reply(http: httpx.Client, path: str, body: Any, wanted: int | str) -> None:
    reply = http.post(path, json={**body, "return_token_ids": True} if path == COMPLETIONS else body)
    if wanted == TOO_LONG:
        error = reply.json()["error"]
        assert (reply.status_code, error["code"]) == (400, wanted)
        assert f"maximum context length is {CONTEXT_LEN} tokens" in error["message"]
    else:
        (choice,) = reply.json()["choices"]
        assert (len(choice["token_ids"]), choice["finish_reason"]) == (wanted, "length")
