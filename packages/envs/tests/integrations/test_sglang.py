"""SGLang's router as a client: what is asked, what is read of a reply, and what becomes of bad ones."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from slimrl.errors import RolloutError, UserError
from slimrl.inference.client import Completion
from slimrl.types import SamplingParams
from slimrl_envs.sglang import Router
from tests.io.replying import Answer, Asked, server

GIVEN = {"temperature": 0.7, "top_p": 0.9, "stop_token_ids": [9], "max_new_tokens": 999}


def reply(pairs: Any = ((-0.5, 11, None), (-0.25, 12, None)), finish: Any = "stop", **meta: Any) -> Answer:
    finish_reason = {"type": finish} if isinstance(finish, str) else finish
    pairs = [list(pair) for pair in pairs] if isinstance(pairs, tuple) else pairs
    meta_info = {"finish_reason": finish_reason, "output_token_logprobs": pairs, **meta}
    return Answer(200, {"text": "", "meta_info": meta_info})


def sampled(
    answer: Callable[[Asked], Answer],
    prompts: tuple[list[int], ...] = ([1, 2, 3],),
    session: str = "",
    patience_s: float = 0.0,
) -> tuple[list[Completion], list[str], list[Asked]]:
    """The completions, the versions of weights, and what was asked."""

    async def work(router: Router) -> tuple[list[Completion], list[str]]:
        async with router.client(GIVEN, 2, session) as client:
            completions = [await client.sample(prompt, SamplingParams(max_tokens=5, seed=3)) for prompt in prompts]
            return completions, client.weight_versions

    with server(answer) as (address, asked):
        router = Router(address.removesuffix("/v1"), patience_s=patience_s)
        completions, versions = asyncio.run(work(router))
    return completions, versions, asked


def test_ids_go_out_and_come_back_with_their_logprobs() -> None:
    pairs = ((-0.5, 11, None), (1e-5, 12, None))  # a rounding error above certainty
    answer = reply(pairs, "length", weight_version="4")
    completions, versions, asked = sampled(lambda _: answer, ([1, 2, 3], [1, 2, 3, 11, 12, 5]))
    assert completions == [Completion((11, 12), (-0.5, 0.0), (0, 0), "length")] * 2
    assert versions == ["4", "4"]
    assert [request.path for request in asked] == ["/generate"] * 2
    assert asked[0].body == {
        "input_ids": [1, 2, 3],
        "sampling_params": {"temperature": 0.7, "top_p": 0.9, "stop_token_ids": [2, 9], "max_new_tokens": 5},
        "return_logprob": True,
    }
    assert asked[1].body["input_ids"] == [1, 2, 3, 11, 12, 5]
    assert GIVEN["max_new_tokens"] == 999  # SLIME's own are left alone


def test_a_session_keeps_to_one_server() -> None:
    assert sampled(lambda _: reply(), session="abc")[2][0].headers["X-SMG-Routing-Key"] == "abc"
    assert "X-SMG-Routing-Key" not in sampled(lambda _: reply())[2][0].headers


@pytest.mark.parametrize(
    ("answer", "reason", "detail"),
    [
        (reply(finish="abort"), "aborted", "the server gave the request up"),
        (reply(finish="tired"), "router_reply", "finish_reason: Input should be 'stop', 'length' or 'abort', not"),
        (reply(()), "router_reply", "0 tokens, and `max_new_tokens` was 5"),
        (reply(((-0.5, 11),) * 6), "router_reply", "6 tokens, and `max_new_tokens` was 5"),
        (reply(None), "router_reply", "output_token_logprobs: Input should be a valid list, not None"),
        *(
            (reply(pairs), "router_reply", "output_token_logprobs.0")
            for pairs in (
                [[None, 11, None]],
                [[0.5, 11]],
                [[float("nan"), 11]],
                [[-0.5, -1]],
                [[-0.5, "11"]],
                [[-0.5]],
                [-0.5],
            )
        ),
        (Answer(200, {"text": "hello"}), "router_reply", "meta_info: Field required"),
        (Answer(500, b"out of memory"), "router_error", "answers with status 500: out of memory"),
    ],
)
def test_a_bad_reply_spoils_one_rollout_and_says_why(answer: Answer, reason: str, detail: str) -> None:
    with pytest.raises(RolloutError) as error:
        sampled(lambda _: answer)
    assert error.value.reason == reason
    assert detail in error.value.detail


def test_what_is_no_router_stops_the_run_and_names_the_flags() -> None:
    with pytest.raises(UserError) as error:
        sampled(lambda _: Answer(403, b"who are you?"))
    assert re.search(r"http://127\.0\.0\.1:\d+/generate answers with status 403: who are you", str(error.value))
    assert "--sglang-router-ip and --sglang-router-port" in str(error.value)


def test_a_router_without_a_worker_is_asked_again() -> None:
    answers = iter([Answer(404, b"no worker available"), reply()])
    completions, _, asked = sampled(lambda _: next(answers), patience_s=5.0)
    assert completions[0].token_ids == (11, 12) and len(asked) == 2
