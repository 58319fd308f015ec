"""A judge that takes turns with the policy on one device, by vLLM's routes for sleeping."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from slimrl.errors import RolloutError, UserError
from slimrl.judges.judge import JudgeServer, LLMJudge
from tests.io.replying import Answer, Asked, completion, server


class Vllm:
    """Answers while it is awake only, as vLLM does, and counts how often it was told what."""

    def __init__(self) -> None:
        self.awake = True
        self.told: list[str] = []

    def __call__(self, asked: Asked) -> Answer:
        if asked.path == "/v1/chat/completions":
            return completion("yes") if self.awake else Answer(500, {"error": "asleep"})
        self.told.append(asked.path)
        self.awake = asked.path == "/wake_up"
        return Answer(200, {})


@contextmanager
def judging(url: str, sleeps: bool = True) -> Iterator[LLMJudge]:
    judge = LLMJudge(JudgeServer(url, "judge", sleeps=sleeps, timeout_s=2.0), None)
    try:
        yield judge
    finally:
        judge.close()


def ask(judge: LLMJudge, *responses: str) -> list[bool]:
    async def all_of_them() -> list[bool]:
        verdicts = await asyncio.gather(*(judge.judge("When?", response, ["1874"]) for response in responses))
        return [verdict.correct for verdict in verdicts]

    return asyncio.run(all_of_them())


def test_it_sleeps_between_steps_and_wakes_once_for_many_questions():
    vllm = Vllm()
    with server(vllm) as (url, _), judging(url) as judge:
        judge.check()
        for step in range(3):
            assert ask(judge, *(f"{step} {n}" for n in range(8))) == [True] * 8
            judge.offload()
            judge.offload()  # it sleeps already
            assert not vllm.awake
    assert vllm.told == ["/wake_up", "/sleep?level=1"] * 3


def test_what_is_in_the_cache_does_not_wake_it_and_without_the_setting_nobody_is_told_to_sleep():
    for sleeps, told in ((True, ["/wake_up", "/sleep?level=1"]), (False, [])):
        vllm = Vllm()
        with server(vllm) as (url, _), judging(url, sleeps) as judge:
            ask(judge, "1874")
            judge.offload()
            ask(judge, "1874")
        assert vllm.told == told


@pytest.mark.parametrize("status", [404, 500])
def test_a_server_that_cannot_sleep_is_told_with_what_to_do(status: int):
    def plain(asked: Asked) -> Answer:
        return completion("yes") if "/chat/" in asked.path else Answer(status, {"detail": "Not Found"})

    told = r"refused POST /wake_up.*run_vllm\.py --sleep"
    with server(plain) as (url, _), judging(url) as judge, pytest.raises(UserError, match=told):
        ask(judge, "1874")


@pytest.mark.slow
def test_a_server_that_is_away_has_no_memory_to_free_and_is_woken_when_it_is_back():
    vllm = Vllm()
    away = False

    def sometimes(asked: Asked) -> Answer:
        if away:
            raise ConnectionError
        return vllm(asked)

    with server(sometimes) as (url, _), judging(url) as judge:
        ask(judge, "1874")
        away = True
        judge.offload()
        with pytest.raises(RolloutError, match="judge_unreachable"):
            ask(judge, "1875")
        away = False
        assert ask(judge, "1875") == [True]
    assert vllm.told == ["/wake_up", "/wake_up"]
