"""The clients of the core under the contract of all HTTP clients, and the rule for asking again."""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import httpx
import pytest

from slimrl.config.teacher import ServerTeacherConfig
from slimrl.errors import UserError
from slimrl.io.http import HttpClient, HttpError, Limits, Peer, ask_again, ask_once, is_healthy
from slimrl.judges.judge import JudgeServer, LLMJudge
from slimrl.orchestrator.teacher_server import ServerTeacher
from slimrl.types import Sample
from tests.io.http_contract import CASES, KEY, Client
from tests.io.replying import Answer, Asked, completion, server

SAMPLE = Sample((5, 6, 7), (False, True, True), (0.0,) * 3, (0.0,) * 3, 0)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("JUDGE_API_KEY", "TEACHER_API_KEY"):
        monkeypatch.setenv(variable, KEY)


def ask_page(root: str, limit_s: float) -> Any:
    return ask_once(Peer("server", root, KEY), f"{root}/page", limit_s)


def ask_judge(root: str, limit_s: float) -> bool:
    judge = LLMJudge(JudgeServer(f"{root}/v1", "judge", timeout_s=limit_s), None)
    try:
        return asyncio.run(judge.judge("When?", "1874", ["1874"])).correct
    finally:
        judge.close()


def ask_teacher(root: str, limit_s: float) -> list[list[float]]:
    config = ServerTeacherConfig(base_url=f"{root}/v1", model="m", timeout_s=limit_s)
    return ServerTeacher(config).score([SAMPLE], 1.0)


def scored(asked: Asked) -> Answer:
    tokens = [*asked.body["prompt"], 7]
    logprobs = {"tokens": [f"token_id:{token}" for token in tokens], "token_logprobs": [None, *[-0.5] * 3]}
    return Answer(200, {"choices": [{"logprobs": logprobs}]})


CLIENTS = [
    Client("page", ask_page, lambda _: Answer(200, {"page": 1}), repeats=False, takes_any_json=True),
    Client("judge", ask_judge, lambda _: completion("yes")),
    Client("teacher", ask_teacher, scored),
]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_client_keeps_the_contract(case: Callable[[Client], None], client: Client) -> None:
    case(client)


def failing(*kinds: tuple[str, int]) -> tuple[Callable[[Any], Any], list[int]]:
    """A request that fails in these ways before it succeeds, and the number of failures that each try was given."""
    peer, left, given = Peer("server", "http://host"), list(kinds), []

    async def ask(failures: Any) -> str:
        given.append(len(failures))
        if not left:
            return "done"
        kind, status = left.pop(0)
        raise HttpError(peer, "http://host/page", f"fails with {status}", kind, status, wait_s=0.01)

    return ask, given


def repeat(limits: Limits, *kinds: tuple[str, int]) -> int:
    """The number of tries until success."""
    ask, given = failing(*kinds)
    assert asyncio.run(ask_again(Peer("server", "http://host"), ask, limits)) == "done"
    assert given == list(range(len(given)))
    return len(given)


BUSY, BROKEN, AWAY, UNUSABLE = ("busy", 503), ("error", 500), ("unreachable", 0), ("error", 200)


def test_only_failures_of_the_request_count_as_tries() -> None:
    assert repeat(Limits(max_tries=2), *[BUSY] * 6, AWAY, BROKEN, *[AWAY] * 2) == 11
    with pytest.raises(HttpError, match=r"fails with 500 \(3 tries\)"):
        repeat(Limits(max_tries=2), BROKEN, BUSY, BROKEN)


def test_patience_is_with_all_failures_but_a_busy_server() -> None:
    assert repeat(Limits(patience_s=0.0), *[BUSY] * 3) == 4
    for failure in (BROKEN, AWAY):
        with pytest.raises(HttpError, match=rf"fails with {failure[1]}\."):
            repeat(Limits(patience_s=0.0), failure)
        assert repeat(Limits(patience_s=5.0), failure) == 2


def test_an_unusable_reply_is_final_unless_a_client_says_otherwise() -> None:
    with pytest.raises(HttpError, match="fails with 200"):
        repeat(Limits(), UNUSABLE)
    assert repeat(Limits(passing=frozenset({200})), UNUSABLE) == 2


def with_client(url: str, use: Callable[[HttpClient], Awaitable[Any]], max_bytes: int = 1 << 20) -> Any:
    async def run() -> Any:
        async with aclosing(HttpClient(Peer("server", url), 1, max_bytes)) as client, asyncio.timeout(10):
            return await use(client)

    return asyncio.run(run())


def test_a_cancelled_request_ends_at_once() -> None:
    async def cancel(client: HttpClient) -> float:
        task = asyncio.create_task(ask_again(Peer("server", url), lambda _: client.send("GET", url), Limits()))
        await asyncio.sleep(0.2)
        began = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - began

    with server(lambda _: Answer(503, b"", {"Retry-After": "60"})) as (url, _):
        assert with_client(url, cancel) < 1.0


def test_requests_that_are_cancelled_while_they_start_keep_no_place() -> None:
    async def cancel_all_then_ask(client: HttpClient) -> Any:
        for num_turns in range(6):
            tasks = [asyncio.create_task(client.send("GET", url)) for _ in range(3)]
            for _ in range(num_turns):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return await client.send("GET", url)

    with server(lambda _: Answer(200, {"page": 1})) as (url, _):
        assert with_client(url, cancel_all_then_ask) == {"page": 1}


def test_a_body_beyond_the_limit_is_not_read_and_half_of_a_surrogate_pair_can_be_sent() -> None:
    answers = iter([Answer(200, b" " * 2000), Answer(200, {"well": 1})])
    with server(lambda _: next(answers)) as (url, asked):
        with pytest.raises(HttpError, match="more than 1,000 bytes"):
            with_client(url, lambda client: client.send("GET", url), max_bytes=1000)
        assert with_client(url, lambda client: client.send("POST", url, {"content": "cut \ud83d"})) == {"well": 1}
    assert asked[1].body == {"content": "cut \ud83d"}


def test_an_error_whose_body_is_compressed_is_an_error_and_a_busy_server_is_asked_again() -> None:
    busy = Answer(503, b"x", {"Content-Encoding": "gzip", "Retry-After": "0"})
    with server(lambda asked: busy) as (url, _):
        assert not is_healthy(url, 2.0)
    answers = iter([busy, Answer(200, {"well": 1})])
    with server(lambda asked: next(answers)) as (url, asked):
        again = Peer("server", url)
        found = with_client(url, lambda client: ask_again(again, lambda _: client.send("GET", url), Limits(5.0)))
        assert found == {"well": 1} and len(asked) == 2


@pytest.mark.parametrize("address", ["http://me:pass-word@localhost:1/v1", "http://localhost/v1?key=pass-word"])
def test_an_address_with_a_key_is_refused_and_not_shown(address: str) -> None:
    with pytest.raises(UserError, match=r"`base_url` has a .* Remove it") as raised:
        HttpClient(Peer("server", address), 1)
    assert "pass-word" not in str(raised.value)


@pytest.mark.parametrize("scheme", ["https", "HTTPS"])
def test_a_certificate_is_verified_however_the_scheme_is_written(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    verified: list[object] = []
    monkeypatch.setattr(httpx, "AsyncClient", lambda **settings: verified.append(settings["verify"]))
    HttpClient(Peer("server", f"{scheme}://example.org", uses_proxy=False), 1)
    assert (
        all(isinstance(one, ssl.SSLContext) and one.verify_mode == ssl.CERT_REQUIRED for one in verified) and verified
    )
