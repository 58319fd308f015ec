"""SGLang's router as a client: what is asked, what is read of a reply, and what becomes of bad ones."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from slimrl.errors import RolloutError, UserError
from slimrl.inference.client import Completion
from slimrl.integrations.sglang import Router
from slimrl.types import SamplingParams
from tests.io.replying import Answer, Asked, server

GIVEN = {"temperature": 0.7, "top_p": 0.9, "stop_token_ids": [9], "max_new_tokens": 999}


def reply(pairs: Any = ((-0.5, 11, None), (-0.25, 12, None)), finish: Any = "stop", **meta: Any) -> Answer:
    finish_reason = {"type": finish} if isinstance(finish, str) else finish
    pairs = [list(pair) for pair in pairs] if isinstance(pairs, tuple) else pairs
    meta_info = {"finish_reason": finish_reason, "output_token_logprobs": pairs, **meta}
    return Answer(200, {"text": "", "meta_info": meta_info})


def sampled(
    answer: Callable[[Asked], Answer], prompts: tuple[list[int], ...] = ([1, 2, 3],), session: str = "", **settings: Any
) -> tuple[list[Completion], list[str], list[Asked]]:
    """The completions, the versions of weights, and what was asked."""

    async def work(router: Router) -> tuple[list[Completion], list[str]]:
        async with router.client(GIVEN, 2, session) as client:
            completions = [await client.sample(prompt, SamplingParams(max_tokens=5, seed=3)) for prompt in prompts]
            return completions, client.weight_versions

    with server(answer) as (address, asked):
        router = Router(address.removesuffix("/v1"), first_wait_s=0.0, **settings)
        completions, versions = asyncio.run(work(router))
    return completions, versions, asked


def test_ids_go_out_and_come_back_with_their_logprobs() -> None:
    completions, versions, asked = sampled(lambda _: reply(weight_version="4"), ([1, 2, 3], [1, 2, 3, 11, 12, 5]))
    assert completions == [Completion((11, 12), (-0.5, -0.25), (0, 0), "stop")] * 2
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


def test_a_cut_reply_says_so() -> None:
    assert sampled(lambda _: reply(finish="length"))[0][0].finish_reason == "length"


@pytest.mark.parametrize(
    ("answer", "reason", "detail"),
    [
        (reply(finish="abort"), "aborted", "the server gave the request up"),
        (reply((), "abort"), "aborted", "the server gave the request up"),
        (reply(finish="tired"), "router_reply", "`finish_reason` is {'type': 'tired'}, expected stop, length or abort"),
        (reply(finish={}), "router_reply", "`finish_reason` is {}"),
        (reply(()), "router_reply", "expected at least one token"),
        (reply(None), "router_reply", "`output_token_logprobs` is None, expected at least one token"),
        (reply([[None, 11, None]]), "router_reply", "the log-probability of token 11 is None"),
        (reply([[0.5, 11]]), "router_reply", "the log-probability of token 11 is 0.5"),
        (reply([[-(10**400), 11]]), "router_reply", "the log-probability of token 11 is -1000"),
        (reply([[-0.5, -1]]), "router_reply", "[-0.5, -1] is no [log-probability, token id]"),
        (reply([[-0.5, 2**40]]), "router_reply", "is no [log-probability, token id]"),
        (Answer(200, b"[" * 200_000), "router_reply", "no JSON: '[[[["),
        (Answer(200, b"{}", {"Content-Encoding": "gzip"}), "router_reply", "what it sent cannot be unpacked: "),
        (reply([[float("nan"), 11]]), "router_reply", "the log-probability of token 11 is nan"),
        (reply([[-float("inf"), 11]]), "router_reply", "the log-probability of token 11 is -inf"),
        (reply([[-0.5, "11"]]), "router_reply", "is no [log-probability, token id]"),
        (reply([-0.5]), "router_reply", "-0.5 is no [log-probability, token id]"),
        (reply(((-0.5, 11),) * 6), "router_reply", "6 tokens, and `max_new_tokens` was 5"),
        (Answer(200, {"text": "hello"}), "router_reply", "a reply without `meta_info`"),
        (Answer(200, [1]), "router_reply", "a reply without `meta_info`"),
        (Answer(200, b"<html>"), "router_reply", "no JSON: '<html>'"),
        (Answer(400, {"error": "too long"}), "router_error", "HTTP 400: "),
        (Answer(500, b"out of memory"), "router_error", "HTTP 500: 'out of memory'"),
        (Answer(429, b"too many"), "router_error", "HTTP 429: 'too many'"),
    ],
)
def test_a_bad_reply_spoils_one_rollout_and_says_why(answer: Answer, reason: str, detail: str) -> None:
    with pytest.raises(RolloutError) as error:
        sampled(lambda _: answer, max_tries=2)
    assert error.value.reason == reason
    assert detail in error.value.detail


@pytest.mark.parametrize("status", [401, 403, 404, 405])
def test_what_is_no_router_stops_the_run_and_names_the_flags(status: int) -> None:
    with pytest.raises(UserError) as error:
        sampled(lambda _: Answer(status, b"who are you?"))
    assert f"/generate takes no requests of ours: HTTP {status}: 'who are you?'" in str(error.value)
    assert "http://127.0.0.1:" in str(error.value)
    assert "--sglang-router-ip and --sglang-router-port" in str(error.value)


def test_a_server_in_trouble_is_asked_again() -> None:
    troubles = [(503, b"updating weights"), (500, b""), (404, b"no worker available"), (429, b"queue is full")]
    for num, trouble in enumerate([*troubles, (408, b"")]):
        answers = iter([*(Answer(*one) for one in troubles[:num]), Answer(*trouble), reply()])
        completions, _, asked = sampled(lambda _, answers=answers: next(answers), max_tries=6)
        assert completions[0].token_ids == (11, 12)
        assert len(asked) == num + 2


def test_a_busy_router_says_how_long_it_wants_to_be_left_alone() -> None:
    times = []

    def answer(_: Asked) -> Answer:
        times.append(time.monotonic())
        return reply() if len(times) > 1 else Answer(429, b"", {"Retry-After": "0.3"})

    sampled(answer)
    assert times[1] - times[0] >= 0.3


def test_certainty_is_no_probability_above_1() -> None:
    assert sampled(lambda _: reply(((1e-5, 11),)))[0][0].logprobs == (0.0,)


def test_a_broken_connection_is_tried_again() -> None:
    answers = iter([None, reply()])

    def answer(_: Asked) -> Answer:
        given = next(answers)
        if given is None:
            raise ConnectionError  # closes without a reply
        return given

    assert len(sampled(answer)[2]) == 2


def test_no_router_stops_the_run_and_names_the_flags() -> None:
    async def work() -> None:
        async with Router("http://127.0.0.1:1", max_tries=2, first_wait_s=0.0).client({}, 2) as client:
            await client.sample([1], SamplingParams(max_tokens=5))

    with pytest.raises(UserError) as error:
        asyncio.run(work())
    assert "does not answer at http://127.0.0.1:1/generate" in str(error.value)
    assert "--sglang-router-ip and --sglang-router-port" in str(error.value)


def test_patience_ends() -> None:
    async def work(address: str) -> None:
        async with Router(address, timeout_s=0.05, max_tries=1).client({}, 2) as client:
            await client.sample([1], SamplingParams(max_tokens=5))

    free = threading.Event()

    def answer(_: Asked) -> Answer:
        free.wait(30)
        return reply()

    with server(answer) as (address, _):
        try:
            with pytest.raises(UserError, match="Timeout"):
                asyncio.run(work(address.removesuffix("/v1")))
        finally:
            free.set()
